//! A web page of somebody else must not reach the service through the browser of somebody inside.

use leasehold_harness::ask;

use crate::server;

#[test]
fn a_write_that_a_foreign_page_made_is_forbidden_and_changes_nothing() {
    let server = server();
    let mut client = server.client();
    let body = ask("r", "a", 10_000).to_string();
    let foreign: [(&str, &str); 5] = [
        ("Origin", "https://evil.example"),
        ("Origin", "http://localhost.evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ];
    for header in foreign {
        let answer = client.call("POST", "/v1/acquire-lock", &[header], body.as_bytes());
        answer.problem(403, "forbidden");
        assert_eq!(client.lock("r")["state"], "free", "{header:?}");
    }
    let own: [(&str, &str); 3] = [
        ("Origin", "http://localhost"),
        ("Sec-Fetch-Site", "same-origin"),
        ("Sec-Fetch-Site", "none"),
    ];
    for header in own {
        let token = client.call("POST", "/v1/acquire-lock", &[header], body.as_bytes()).token();
        client.let_go("r", token);
    }
}

#[test]
fn a_name_that_is_not_this_nodes_is_forbidden_as_its_owner_may_point_it_anywhere() {
    let server = server();
    for (host, allowed) in [
        ("evil.example", false),
        ("localhost.evil.example", false),
        ("127.0.0.1:7070", true),
        ("[::1]", true),
    ] {
        let mut client = server.client();
        let request = format!("GET /v1/lock?resource=r HTTP/1.1\r\nHost: {host}\r\n\r\n");
        client.send(request.as_bytes()).expect("the request is sent");
        let answer = client.finish();
        if allowed {
            answer.ok();
        } else {
            answer.problem(403, "forbidden");
        }
    }
}
