//! The calls that nearly every test makes, so that a test reads as its story.

use serde_json::{Value, json};

use crate::{Answer, Client, encode};

/// The smallest acquire: try once, with a lease of its own.
pub fn ask(resource: &str, client: &str, ttl_ms: u64) -> Value {
    json!({"resource": resource, "client_id": client, "ttl_ms": ttl_ms})
}

/// An acquire that attaches its grant to a lease.
pub fn ask_on(resource: &str, client: &str, lease: &str) -> Value {
    json!({"resource": resource, "client_id": client, "lease_id": lease})
}

/// `body` with the fields of `more` added or replaced.
pub fn with(mut body: Value, more: Value) -> Value {
    let (Value::Object(fields), Value::Object(more)) = (&mut body, more) else {
        panic!("both are objects");
    };
    fields.extend(more);
    body
}

impl Client {
    /// Sends an acquire.
    #[track_caller]
    pub fn acquire(&mut self, body: &Value) -> Answer {
        self.post("/v1/acquire-lock", body)
    }

    /// Sends an acquire that waits, and returns before its answer; `finish` reads that.
    #[track_caller]
    pub fn begin_acquire(&mut self, body: &Value) {
        self.begin("/v1/acquire-lock", body);
    }

    /// Renews by resource and token.
    #[track_caller]
    pub fn renew(&mut self, resource: &str, token: u64) -> Answer {
        self.post("/v1/renew-lock", &json!({"resource": resource, "token": token}))
    }

    /// Releases by resource and token.
    #[track_caller]
    pub fn release(&mut self, resource: &str, token: u64) -> Answer {
        self.post("/v1/release-lock", &json!({"resource": resource, "token": token}))
    }

    /// Releases what this test holds for certain.
    #[track_caller]
    pub fn let_go(&mut self, resource: &str, token: u64) {
        let answer = self.release(resource, token);
        assert_eq!(answer.ok()["released"], true, "{answer}");
    }

    /// The state of one lock.
    #[track_caller]
    pub fn lock(&mut self, resource: &str) -> Value {
        self.get(&format!("/v1/lock?resource={}", encode(resource))).ok()
    }

    /// The tokens that hold a resource, in the order in which they are listed.
    #[track_caller]
    pub fn holders(&mut self, resource: &str) -> Vec<u64> {
        let lock = self.lock(resource);
        let holders = lock["holders"].as_array().cloned().unwrap_or_default();
        holders.iter().filter_map(|holder| holder["token"].as_u64()).collect()
    }

    /// How many stand in line for a resource.
    #[track_caller]
    pub fn queue_length(&mut self, resource: &str) -> u64 {
        let lock = self.lock(resource);
        lock["queue_length"].as_u64().unwrap_or_else(|| panic!("no queue_length in {lock}"))
    }

    /// Opens a lease and gives its id.
    #[track_caller]
    pub fn open_lease(&mut self, client: &str, ttl_ms: u64) -> String {
        let answer = self.post("/v1/leases", &json!({"client_id": client, "ttl_ms": ttl_ms}));
        let lease = answer.json()["lease_id"].as_str().map(str::to_owned);
        lease.unwrap_or_else(|| panic!("no lease_id in {answer}"))
    }

    /// Keeps one lease alive.
    #[track_caller]
    pub fn keep_alive(&mut self, lease: &str) -> Answer {
        self.call("POST", &format!("/v1/leases/{lease}/keep-alive"), &[], b"")
    }

    /// The value of a metric without labels. It may be as old as the node's last look.
    #[track_caller]
    pub fn metric(&mut self, name: &str) -> u64 {
        self.get("/metrics").metric(name)
    }
}
