//! Which requests must show a token.

use super::*;
use hyper::Request;

fn demand(
    rules: &Rules,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Demand, Code> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (head, ()) = request.body(()).expect("a request").into_parts();
    rules.demand(&head).map_err(|problem| problem.code)
}

fn rules(protect: &[&str]) -> Rules {
    let protect = protect.iter().map(|text| Pattern::parse(text).expect("a pattern")).collect();
    Rules { protect, ..Rules::default() }
}

fn shown(resource: &str) -> Shown {
    Shown { resource: resource.to_owned(), token: 34 }
}

const INVOICE: [(&str, &str); 2] = [("fencing-resource", "invoice/42"), ("fencing-token", "34")];

#[test]
fn every_method_that_is_not_known_to_read_is_a_write() {
    for method in ["PUT", "POST", "PATCH", "DELETE", "MKCOL", "MOVE", "LOCK", "get", "FROB"] {
        let rules = Rules::default();
        assert_eq!(demand(&rules, method, "/x", &[]), Err(Code::TokenRequired), "{method}");
        let write = Demand::Write(shown("invoice/42"));
        assert_eq!(demand(&rules, method, "/x", &INVOICE), Ok(write), "{method}");
    }
}

#[test]
fn a_read_needs_nothing_and_seals_when_it_shows_a_token() {
    let rules = Rules::default();
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND"] {
        assert_eq!(demand(&rules, method, "/a/../b", &[]), Ok(Demand::Nothing), "{method}");
        let seal = Demand::Seal(shown("invoice/42"));
        assert_eq!(demand(&rules, method, "/x", &INVOICE), Ok(seal), "{method}");
    }
    let shared = [INVOICE[0], INVOICE[1], ("fencing-mode", "shared")];
    assert_eq!(demand(&rules, "GET", "/x", &shared), Ok(Demand::Nothing));
    assert_eq!(demand(&rules, "PUT", "/x", &shared), Err(Code::SharedToken));
}

#[test]
fn a_path_belongs_to_its_resource_and_to_no_other() {
    let rules = rules(&["/invoices/{id}=invoice/{id}", "/free-for-all/**"]);
    let put = |path, headers: &[_]| demand(&rules, "PUT", path, headers);
    assert_eq!(put("/invoices/42", &INVOICE), Ok(Demand::Write(shown("invoice/42"))));
    assert_eq!(
        put("/invoices/42?x=/invoices/43", &INVOICE),
        Ok(Demand::Write(shown("invoice/42")))
    );
    assert_eq!(put("/invoices/%34%32", &INVOICE), Ok(Demand::Write(shown("invoice/42"))));
    assert_eq!(put("/invoices/43", &INVOICE), Err(Code::WrongResource));
    assert_eq!(put("/free-for-all/x", &INVOICE), Ok(Demand::Write(shown("invoice/42"))));
    assert_eq!(put("/free-for-all/x", &[]), Err(Code::TokenRequired));
    assert_eq!(put("/elsewhere", &[]), Ok(Demand::Nothing));
}

#[test]
fn a_way_around_a_pattern_is_refused() {
    let rules = rules(&["/invoices/{id}=invoice/{id}"]);
    for path in [
        "/x/../invoices/42",
        "//invoices/42",
        "/invoices%2F42",
        "/invoices/42%00",
        "/invoices/42;a",
    ] {
        assert_eq!(demand(&rules, "PUT", path, &[]), Err(Code::AmbiguousPath), "{path}");
        assert_eq!(demand(&rules, "GET", path, &[]), Ok(Demand::Nothing), "{path}");
    }
}

#[test]
fn a_destination_is_written_to_as_well() {
    let rules = rules(&["/invoices/{id}=invoice/{id}"]);
    let to = |path, destination, shows: bool| {
        let mut headers = vec![("destination", destination)];
        headers.extend(shows.then_some(INVOICE).into_iter().flatten());
        demand(&rules, "MOVE", path, &headers)
    };
    assert_eq!(to("/draft", "/invoices/42", false), Err(Code::TokenRequired));
    assert_eq!(to("/draft", "http://host/invoices/42", false), Err(Code::TokenRequired));
    assert_eq!(to("/draft", "/invoices/42", true), Ok(Demand::Write(shown("invoice/42"))));
    assert_eq!(to("/invoices/42", "/invoices/43", true), Err(Code::WrongResource));
    assert_eq!(to("/draft", "/a/../invoices/42", true), Err(Code::AmbiguousPath));
    assert_eq!(to("/draft", "nonsense", true), Err(Code::InvalidRequest));
    assert_eq!(to("/draft", "/elsewhere", false), Ok(Demand::Nothing));
}

#[test]
fn a_collection_of_what_is_protected_cannot_be_changed_as_a_whole() {
    let rules = rules(&["/invoices/{id}=invoice/{id}"]);
    assert_eq!(demand(&rules, "DELETE", "/invoices", &INVOICE), Err(Code::WrongResource));
    assert_eq!(demand(&rules, "DELETE", "/", &[]), Err(Code::TokenRequired));
    assert_eq!(demand(&rules, "DELETE", "/orders", &[]), Ok(Demand::Nothing));
    assert_eq!(demand(&rules, "MKCOL", "/invoices", &[]), Ok(Demand::Nothing));
    for method in ["PUT", "POST", "delete", "move", "REBIND", "mkcol"] {
        assert_eq!(demand(&rules, method, "/invoices", &INVOICE), Err(Code::WrongResource));
        assert_eq!(demand(&rules, method, "/invoices?delete", &[]), Err(Code::TokenRequired));
    }
}

#[test]
fn what_lies_below_a_path_belongs_to_the_same_resource() {
    let rules = rules(&["/invoices/{id}=invoice/{id}", "/invoices/{id}/lines/{n}=line/{n}"]);
    let put = |path, headers: &[_]| demand(&rules, "PUT", path, headers);
    assert_eq!(put("/invoices/42/x", &[]), Err(Code::TokenRequired));
    assert_eq!(put("/invoices/42/x/y", &INVOICE), Ok(Demand::Write(shown("invoice/42"))));
    assert_eq!(put("/invoices/43/x", &INVOICE), Err(Code::WrongResource));
    // A pattern of its own counts first, wherever it stands; then the nearest above.
    assert_eq!(put("/invoices/42/lines/7", &INVOICE), Err(Code::WrongResource));
    let line = [("fencing-resource", "line/7"), ("fencing-token", "34")];
    assert_eq!(put("/invoices/42/lines/7", &line), Ok(Demand::Write(shown("line/7"))));
    assert_eq!(put("/invoices/42/lines/7/x", &line), Ok(Demand::Write(shown("line/7"))));
    assert_eq!(put("/invoices/42/lines/7/x", &INVOICE), Err(Code::WrongResource));
}

#[test]
fn a_pattern_for_all_the_rest_takes_nothing_away_from_those_before_it() {
    let invoice = "/invoices/{id}=invoice/{id}";
    let put = |protect: &[&str], path| demand(&rules(protect), "PUT", path, &INVOICE);
    let written = Ok(Demand::Write(shown("invoice/42")));
    for all in ["/**", "/invoices/**", "/**=all"] {
        assert_eq!(put(&[invoice, all], "/invoices/43/x"), Err(Code::WrongResource), "{all}");
        assert_eq!(put(&[invoice, all], "/invoices/42/x/y"), written, "{all}");
        assert_eq!(put(&[invoice, all], "/invoices/42"), written, "{all}");
    }
    assert_eq!(put(&[invoice, "/**"], "/orders/43/x"), written);
    // The first that matches counts, so before it such a pattern takes what lies below as well.
    assert_eq!(put(&["/**", invoice], "/invoices/43"), written);
    assert_eq!(put(&["/**", invoice], "/invoices/43/x"), written);
    // One that reaches deeper stands behind it for a part.
    assert_eq!(put(&[invoice, "/invoices/{id}/notes/**"], "/invoices/43/notes/x"), written);
}

#[test]
fn a_collection_with_an_owner_is_not_changed_with_what_belongs_to_others_below_it() {
    let of = |protect: &[&str], path| demand(&rules(protect), "DELETE", path, &INVOICE);
    let written = Ok(Demand::Write(shown("invoice/42")));
    let invoice = "/invoices/{id}=invoice/{id}";
    let line = "/invoices/{id}/lines/{n}=line/{n}";
    assert_eq!(of(&[invoice], "/invoices/42"), written);
    assert_eq!(of(&[invoice, line], "/invoices/42"), Err(Code::WrongResource));
    assert_eq!(of(&[invoice, line], "/invoices/42/lines"), Err(Code::WrongResource));
    assert_eq!(of(&[invoice, line], "/invoices/42/notes"), written);
    // The same resource, and whatever resource.
    assert_eq!(of(&[invoice, "/invoices/{id}/x=invoice/{id}"], "/invoices/42"), written);
    assert_eq!(of(&[invoice, "/invoices/{id}/x"], "/invoices/42"), written);
    assert_eq!(of(&["/**", invoice], "/invoices"), written);
    assert_eq!(of(&[invoice, "/**"], "/invoices"), Err(Code::WrongResource));
    // What stands behind a pattern that takes all the rest is never looked at.
    let all = "/invoices/{id}/**=invoice/{id}";
    assert_eq!(of(&[all, line], "/invoices/42"), written);
    assert_eq!(of(&[line, all], "/invoices/42"), Err(Code::WrongResource));
}

#[test]
fn methods_are_compared_as_clients_write_them() {
    let read_methods = Rules::methods("get, Report").expect("methods");
    let rules = Rules { read_methods, ..Rules::default() };
    assert_eq!(demand(&rules, "GET", "/x", &[]), Ok(Demand::Nothing));
    assert_eq!(demand(&rules, "REPORT", "/x", &[]), Ok(Demand::Nothing));
    // Another method, whatever a server makes of it.
    assert_eq!(demand(&rules, "get", "/x", &[]), Err(Code::TokenRequired));
    assert_eq!(demand(&rules, "HEAD", "/x", &[]), Err(Code::TokenRequired));
    for none in ["", "GET,", "GET;HEAD,PUT(", "GET HEAD"] {
        assert!(Rules::methods(none).is_err(), "{none}");
    }
}

fn making(protect: &[&str], makes_only: &[&str]) -> Rules {
    let parse = |text: &&str| MakesOnly::parse(text).expect("a method and a pattern");
    Rules { makes_only: makes_only.iter().map(parse).collect(), ..rules(protect) }
}

#[test]
fn what_only_makes_something_new_can_be_let_through() {
    let invoice = "/invoices/{id}=invoice/{id}";
    let open = making(&[invoice], &["post /invoices"]);
    assert_eq!(demand(&open, "POST", "/invoices", &[]), Ok(Demand::Nothing));
    assert_eq!(demand(&open, "POST", "/invoices/", &[]), Ok(Demand::Nothing));
    // Nothing else is opened with it.
    for (method, path) in [
        ("DELETE", "/invoices"),
        ("PUT", "/invoices"),
        ("post", "/invoices"),
        ("POST", "/"),
        ("POST", "/invoices/42"),
    ] {
        assert_eq!(demand(&open, method, path, &[]), Err(Code::TokenRequired), "{method} {path}");
    }
    assert_eq!(demand(&open, "POST", "/invoices;x", &[]), Err(Code::AmbiguousPath));
    let there = [("destination", "/invoices")];
    assert_eq!(demand(&open, "POST", "/invoices", &there), Err(Code::TokenRequired));
}

#[test]
fn a_collection_can_have_a_lock_of_its_own_for_what_is_made_in_it() {
    let (invoice, all) = ("/invoices/{id}=invoice/{id}", "/invoices=invoices");
    let under = [("fencing-resource", "invoices"), ("fencing-token", "34")];
    let post = |rules: &Rules, headers: &[_]| demand(rules, "POST", "/invoices", headers);
    // Its lock alone does not say that its items stay as they are.
    assert_eq!(post(&rules(&[invoice, all]), &under), Err(Code::WrongResource));
    let made = making(&[invoice, all], &["POST /invoices"]);
    assert_eq!(post(&made, &[]), Err(Code::TokenRequired));
    assert_eq!(post(&made, &INVOICE), Err(Code::WrongResource));
    assert_eq!(post(&made, &under), Ok(Demand::Write(shown("invoices"))));
    assert_eq!(demand(&made, "DELETE", "/invoices", &under), Err(Code::WrongResource));
}

#[test]
fn the_refusal_of_a_collection_says_how_it_can_be_allowed() {
    let (head, ()) = hyper::Request::builder()
        .method("POST")
        .uri("/invoices?x")
        .header("fencing-resource", "invoices")
        .header("fencing-token", "34")
        .body(())
        .expect("a request")
        .into_parts();
    let refused = rules(&["/invoices/{id}=invoice/{id}"]).demand(&head).expect_err("refused");
    assert!(refused.detail.contains("--makes-only 'POST /invoices'"), "{}", refused.detail);
}

#[test]
fn what_makes_something_is_a_method_and_a_pattern() {
    for text in
        ["", "POST", "/invoices", "POST invoices", "PO(ST /invoices", "POST /a=b", "POST /a/../b"]
    {
        assert!(MakesOnly::parse(text).is_err(), "{text}");
    }
}
