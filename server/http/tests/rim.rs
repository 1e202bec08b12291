//! The rim against real sockets: what it must keep of the HTTP layer below it, and what that
//! layer does not do by itself. A new version of that layer has to pass this first.

use leasehold_http::{Server, Settings, Sockets, start};
use leasehold_node::{Metrics, Node, NodeConfig};
use prometheus::Registry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(20);
const HEAD_TIMEOUT: Duration = Duration::from_millis(400);

struct Rim {
    server: Server,
    node: Node,
    address: SocketAddr,
    _files: tempfile::TempDir,
}

fn serve(settings: Settings, node: &Node, registry: Registry) -> Server {
    let sockets = Sockets::bind(&settings).expect("free ports");
    let shown = Arc::new(|_: &_| Vec::new());
    start(sockets, settings, node.clone(), registry, shown).expect("they are bound")
}

async fn rim_with(change: impl FnOnce(&mut Settings)) -> Rim {
    let files = tempfile::tempdir().expect("a directory");
    let registry = Registry::new();
    let metrics = Metrics::new(&registry).expect("new names");
    let config = NodeConfig::new(1, files.path().to_owned());
    let node = Node::start(config, metrics).await.expect("an empty directory is founded");
    let mut settings = Settings {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        head_timeout: HEAD_TIMEOUT,
        body_timeout: Duration::from_millis(300),
        linger: Duration::from_millis(100),
        ..Settings::default()
    };
    change(&mut settings);
    let server = serve(settings, &node, registry);
    let address = server.addresses()[0];
    let rim = Rim { server, node, address, _files: files };
    let mut ready = rim.connect().await;
    until("it is ready", async || ready.exchange(&get("/readyz")).await.status == 200).await;
    rim
}

async fn rim() -> Rim {
    rim_with(|_| {}).await
}

impl Rim {
    async fn connect(&self) -> Client {
        connect(self.address).await
    }

    /// The value of one series at `/metrics`.
    async fn count(&self, series: &str) -> u64 {
        let text = self.connect().await.exchange(&get("/metrics")).await.body;
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("no series {series}")).trim().parse().expect("a count")
    }

    async fn held(&self, resource: &str) {
        let answer = self.connect().await.exchange(&acquire(resource, 0)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

struct Client(TcpStream);

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
    /// The server closed the connection after it.
    closed: bool,
}

async fn connect(address: SocketAddr) -> Client {
    Client(TcpStream::connect(address).await.expect("somebody listens"))
}

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    async fn exchange(&mut self, request: &str) -> Answer {
        self.send(request).await;
        self.answer().await
    }

    async fn answer(&mut self) -> Answer {
        tokio::time::timeout(PATIENCE, self.read()).await.expect("an answer in time")
    }

    async fn read(&mut self) -> Answer {
        let mut bytes = Vec::new();
        let (head, length) = loop {
            assert_ne!(self.0.read_buf(&mut bytes).await.expect("no reset"), 0, "{bytes:?}");
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, _)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                break (
                    head.to_owned(),
                    length.map_or(0, |n| n.parse::<usize>().expect("a length")),
                );
            }
        };
        let whole = head.len() + 4 + length;
        while bytes.len() < whole {
            assert_ne!(self.0.read_buf(&mut bytes).await.expect("no reset"), 0, "cut short");
        }
        assert_eq!(
            bytes.len(),
            whole,
            "nothing but one answer: {}",
            String::from_utf8_lossy(&bytes)
        );
        let body = String::from_utf8(bytes[head.len() + 4..].to_vec()).expect("text");
        let status = head[9..12].parse().expect("a status");
        let closed = matches!(
            tokio::time::timeout(Duration::from_millis(50), self.0.read_u8()).await,
            Ok(Err(_))
        );
        Answer { status, head, body, closed }
    }

    /// The server closes the connection without another word.
    async fn is_closed(&mut self) {
        let read = tokio::time::timeout(PATIENCE, self.0.read_u8()).await.expect("closed in time");
        assert!(read.is_err(), "closed, and nothing said");
    }
}

impl Answer {
    fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.body.contains(&format!("\"code\":\"{code}\"")), "{self:?}");
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        let trace = self.head.lines().find_map(|line| line.strip_prefix("leasehold-trace-id: "));
        assert!(self.body.contains(trace.expect("the trace is in the head")), "{self:?}");
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn acquire(resource: &str, wait_ms: u64) -> String {
    let body = format!(
        r#"{{"resource":"{resource}","client_id":"c","ttl_ms":60000,"wait_ms":{wait_ms}}}"#
    );
    post("/v1/acquire-lock", &body)
}

async fn until(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !check().await {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const WAITING: &str = "leasehold_http_waiting";
const HUNG_UP: &str = r#"leasehold_http_requests_total{outcome="hung_up",route="acquire-lock"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_cannot_be_read_get_the_one_shape() {
    let rim = rim().await;
    let many: String = (0..200).map(|i| format!("x-{i}: 1\r\n")).collect();
    let floods = [
        (
            format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nx: {}\r\n\r\n", "x".repeat(300_000)),
            431,
            "headers_too_large",
        ),
        (format!("GET /livez HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"), 431, "headers_too_large"),
        (
            format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nx: {}\r\n\r\n", "x".repeat(40_000)),
            431,
            "headers_too_large",
        ),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n".to_owned(), 400, "invalid_request"),
        ("\u{16}\u{3}\u{1}hello\r\n\r\n".to_owned(), 400, "invalid_request"),
    ];
    for (request, status, code) in floods {
        rim.connect().await.exchange(&request).await.is_problem(status, code);
    }
    let unreadable =
        r#"leasehold_http_requests_total{outcome="headers_too_large",route="unreadable"}"#;
    assert_eq!(rim.count(unreadable).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_do_not_arrive_are_not_waited_for() {
    let rim = rim().await;
    let mut first = rim.connect().await;
    first.exchange("GET /livez HTTP/1.1\r\n").await.is_problem(408, "request_timeout");
    // The same on a connection that has been in use for a while, and with a trickle of bytes.
    let mut second = rim.connect().await;
    assert_eq!(second.exchange(&get("/livez")).await.status, 200);
    tokio::time::sleep(HEAD_TIMEOUT * 2).await;
    assert_eq!(second.exchange(&get("/livez")).await.status, 200);
    for byte in b"GET /live" {
        second.send([*byte]).await;
        tokio::time::sleep(HEAD_TIMEOUT / 10).await;
    }
    second.answer().await.is_problem(408, "request_timeout");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_bounded_in_size_and_time() {
    let rim = rim().await;
    let large = post("/v1/acquire-lock", &" ".repeat(33_000));
    rim.connect().await.exchange(&large).await.is_problem(413, "too_large");
    let announced =
        "POST /v1/acquire-lock HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{";
    rim.connect().await.exchange(announced).await.is_problem(408, "request_timeout");
    let bulk = post("/v1/batch", &format!("{}{{\"operations\":[]}}", " ".repeat(200_000)));
    assert_eq!(rim.connect().await.exchange(&bulk).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_from_the_head_alone_keeps_the_connection() {
    let rim = rim().await;
    let mut client = rim.connect().await;
    let foreign = acquire("r", 0).replace("Host", "Origin: http://evil.example\r\nHost");
    for _ in 0..3 {
        let answer = client.exchange(&foreign).await;
        answer.is_problem(403, "forbidden");
        assert!(!answer.closed, "{answer:?}");
    }
    let typed = acquire("r", 0).replace("Host", "Content-Type: text/xml\r\nHost");
    client.exchange(&typed).await.is_problem(415, "unsupported_media_type");
    client.exchange(&post("/nowhere", "{}")).await.is_problem(404, "not_found");
    assert_eq!(client.exchange(&acquire("r", 0)).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_waits_no_more() {
    let rim = rim().await;
    rim.held("r").await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = rim.connect().await;
        client.send(acquire("r", 60_000)).await;
        clients.push(client);
    }
    until("all wait", async || rim.count(WAITING).await == 4).await;
    // Closed; closed one way; reset; closed with more requests sent ahead.
    let mut half = clients.pop().expect("four");
    half.0.shutdown().await.expect("open until now");
    let reset = clients.pop().expect("three");
    reset.0.set_zero_linger().expect("an open socket");
    let mut ahead = clients.pop().expect("two");
    ahead.send(acquire("r", 60_000).repeat(20)).await;
    drop((clients, reset, ahead));
    until("nobody waits", async || rim.count(WAITING).await == 0).await;
    assert_eq!(rim.count(HUNG_UP).await, 4);
    half.is_closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_on_without_waiting_is_cut_off() {
    let rim = rim().await;
    rim.held("r").await;
    let mut client = rim.connect().await;
    client.send(acquire("r", 60_000)).await;
    until("it waits", async || rim.count(WAITING).await == 1).await;
    // Large enough to fill every buffer on the way; the write fails once the server has closed.
    let _ = client.0.write_all(acquire("r", 0).repeat(50_000).as_bytes()).await;
    until("it is cut off", async || rim.count(HUNG_UP).await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_sent_ahead_are_answered_in_their_order() {
    let rim = rim().await;
    rim.held("r").await;
    let mut client = rim.connect().await;
    client.send(acquire("a", 0) + &acquire("r", 1_000)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.send(acquire("b", 0)).await;
    let mut text = String::new();
    while text.matches("HTTP/1.1 ").count() < 3 {
        let mut part = vec![0; 4096];
        let read = client.0.read(&mut part).await.expect("open");
        assert_ne!(read, 0, "closed after {text}");
        text.push_str(std::str::from_utf8(&part[..read]).expect("text"));
    }
    let statuses: Vec<&str> = text.split("HTTP/1.1 ").skip(1).map(|rest| &rest[..3]).collect();
    assert_eq!(statuses, ["200", "409", "200"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_answers_everybody_and_takes_nothing_new() {
    let rim = rim().await;
    rim.held("r").await;
    let (mut waiter, mut other, mut prober) =
        (rim.connect().await, rim.connect().await, rim.connect().await);
    waiter.send(acquire("r", 60_000)).await;
    until("it waits", async || rim.count(WAITING).await == 1).await;
    rim.server.drain();
    prober.exchange(&get("/readyz")).await.is_problem(503, "not_ready");
    assert_eq!(prober.exchange(&get("/livez")).await.status, 200);
    other.exchange(&acquire("s", 0)).await.is_problem(503, "shutting_down");
    let release = post("/v1/release-lock", r#"{"resource":"r","token":1000}"#);
    assert_eq!(other.exchange(&release).await.status, 409, "giving back is still taken");
    rim.node.refuse();
    waiter.answer().await.is_problem(503, "shutting_down");
    let begun = Instant::now();
    rim.server.stop(Duration::from_secs(10)).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "idle connections do not hold it up");
    assert!(TcpStream::connect(rim.address).await.is_err(), "nobody listens");
    rim.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_answered_in_time_is_cut() {
    let rim = rim().await;
    rim.held("r").await;
    let mut waiter = rim.connect().await;
    waiter.send(acquire("r", 60_000)).await;
    until("it waits", async || rim.count(WAITING).await == 1).await;
    let begun = Instant::now();
    rim.server.stop(Duration::from_millis(300)).await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    waiter.is_closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_can_have_an_address_of_its_own() {
    let rim = rim_with(|settings| settings.ops_listen = None).await;
    assert_eq!(rim.server.ops_address(), None);
    let files = tempfile::tempdir().expect("a directory");
    let registry = Registry::new();
    let config = NodeConfig::new(1, files.path().to_owned());
    let node =
        Node::start(config, Metrics::new(&registry).expect("new names")).await.expect("founded");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings =
        Settings { listen: vec![any, any], ops_listen: Some(any), ..Settings::default() };
    let server = serve(settings, &node, registry);
    let ops = server.ops_address().expect("asked for");
    assert_eq!(connect(ops).await.exchange(&get("/livez")).await.status, 200);
    connect(ops).await.exchange(&get("/v1/locks")).await.is_problem(404, "not_found");
    for address in server.addresses() {
        connect(*address).await.exchange(&get("/livez")).await.is_problem(404, "not_found");
        assert_eq!(connect(*address).await.exchange(&get("/v1/locks")).await.status, 200);
    }
    server.stop(Duration::from_secs(5)).await;
    node.shutdown().await;
}
