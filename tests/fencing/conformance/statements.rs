//! Statements and commands of a user: sound ones, holes, and what is spared and left.

use leasehold_harness::Value;
use leasehold_harness::redis::Redis;

use super::{CLEANUP, READ, SEAL, SETUP, codes, fence, refused, row, sql, text, told, with_kit};

const GUARD: &str = "SELECT leasehold.guard(:resource, :token)";
const BLIND: &str = "UPDATE invoice SET total = :value WHERE name = :resource";
const OWN_SEAL: &str =
    "UPDATE invoice SET last_token = :token WHERE name = :resource AND last_token <= :token";
const OWN_WRITE: &str = "UPDATE invoice SET total = :value, last_token = :token \
     WHERE name = :resource AND last_token <= :token";
const OWN_CHECK: &str = "SELECT 1 FROM invoice WHERE name = :resource AND last_token <= :token";

/// Looks into another table: that is not looked at again after the statement has waited for its row.
const SUBQUERY: &str = "UPDATE invoice SET total = :value WHERE name = :resource \
     AND :token >= (SELECT leasehold.highest_token(:resource))";
const SINKING_SEAL: &str = "UPDATE invoice SET last_token = :token WHERE name = :resource";
const TOO_STRICT: &str = "UPDATE invoice SET total = :value, last_token = :token \
     WHERE name = :resource AND last_token < :token";

/// Statements of a user: the seal, the write, and whether each commits by itself.
struct Case<'a> {
    seal: &'a [&'a str],
    write: &'a [&'a str],
    autocommit: bool,
}

impl Case<'_> {
    #[track_caller]
    fn run(&self, url: &str, more: &[&str]) -> (Value, Option<i32>) {
        let mut args = vec!["test", "--postgres", url, "--rounds", "80", "--setup", SETUP];
        args.extend(["--cleanup", CLEANUP, "--read", READ]);
        for seal in self.seal {
            args.extend(["--seal", seal]);
        }
        for write in self.write {
            args.extend(["--write", write]);
        }
        if self.autocommit {
            args.push("--autocommit");
        }
        args.extend(more);
        told(&args)
    }
}

fn case<'a>(seal: &'a [&'a str], write: &'a [&'a str]) -> Case<'a> {
    Case { seal, write, autocommit: false }
}

const INVOICE: &str = "CREATE TABLE invoice \
     (name text PRIMARY KEY, total integer NOT NULL, last_token bigint NOT NULL DEFAULT 0)";

#[test]
fn sound_statements_of_a_user_are_found_sound() {
    let server = with_kit();
    sql(&server, INVOICE);
    // As a test that was killed leaves it.
    sql(&server, "INSERT INTO invoice VALUES ('leasehold-fence-test/1', 9, 9)");
    for sound in [case(&[SEAL], &[GUARD, BLIND]), case(&[OWN_SEAL], &[OWN_WRITE])] {
        let (report, code) = sound.run(&server.url(), &["--isolation", "all"]);
        assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    }
    assert_eq!(sql(&server, "SELECT name FROM invoice"), [""; 0], "it removed its rows");
}

#[test]
fn a_hole_is_found_and_named() {
    let server = with_kit();
    sql(&server, INVOICE);
    let together = format!("WITH g AS ({GUARD}) {BLIND} AND (SELECT true FROM g)");
    let holes = [
        ("no_check", case(&[SEAL], &[BLIND])),
        ("no_seal", case(&[], &[GUARD, BLIND])),
        ("two_steps", Case { seal: &[SEAL], write: &[GUARD, BLIND], autocommit: true }),
        ("two_steps", case(&[OWN_SEAL], &[OWN_CHECK, BLIND])),
        ("two_steps", case(&[SEAL], &[SUBQUERY])),
        ("token_sinks", case(&[SINKING_SEAL], &[OWN_WRITE])),
        ("holder_refused", case(&[], &[TOO_STRICT])),
    ];
    for (wanted, hole) in holes {
        let (report, code) = hole.run(&server.url(), &[]);
        assert_eq!(
            (&report["verdict"], code),
            (&"not_fenced".into(), Some(1)),
            "{wanted} {report}"
        );
        let found = codes(&report);
        assert!(found.contains(&wanted), "{wanted}: {report}");
        let others = ["no_check", "no_seal", "two_steps", "token_sinks"];
        let others = others.iter().filter(|other| **other != wanted && found.contains(other));
        // The one that refuses its holder has no seal on top.
        let allowed: &[&str] = if wanted == "holder_refused" { &["no_seal"] } else { &[] };
        let others: Vec<_> = others.filter(|other| !allowed.contains(other)).collect();
        assert!(others.is_empty(), "{wanted} was told as {others:?} as well: {report}");
        let advice = report["findings"][0]["advice"].as_str().unwrap_or_default();
        assert!(!advice.is_empty(), "{report}");
    }
    // Guard and write in one statement share a snapshot. Whether that loses something depends on
    // what the planner runs first; the test must not end otherwise than with a verdict.
    let (report, _) = case(&[SEAL], &[together.as_str()]).run(&server.url(), &[]);
    assert_eq!(report["stopped"], Value::Null, "{report}");
    assert_eq!(sql(&server, "SELECT name FROM invoice"), [""; 0], "it removed its rows");
}

/// Each looks at a token without holding it until the commit. No statement comes after the look, so
/// only a holder that is paused before its commit shows it.
#[test]
fn a_trigger_that_looks_without_a_lock_is_found() {
    let look = "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF EXISTS (SELECT FROM seen WHERE seen.name = NEW.name AND token > NEW.last_token) THEN \
         RAISE EXCEPTION 'stale' USING ERRCODE = 'LH001'; END IF; RETURN NEW; END $$; \
         CREATE TABLE seen (name text PRIMARY KEY, token bigint)";
    let ask = "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF leasehold.highest_token(NEW.name) > NEW.last_token THEN \
         RAISE EXCEPTION 'stale' USING ERRCODE = 'LH001'; END IF; RETURN NEW; END $$";
    let trigger =
        "CREATE TRIGGER look BEFORE UPDATE ON invoice FOR EACH ROW EXECUTE FUNCTION look()";
    let seal = "INSERT INTO seen VALUES (:resource, :token) ON CONFLICT (name) DO UPDATE \
         SET token = EXCLUDED.token WHERE seen.token <= EXCLUDED.token";
    let write = "UPDATE invoice SET total = :value, last_token = :token WHERE name = :resource";
    for (function, seal) in [(look, seal), (ask, SEAL)] {
        for write in [&[write][..], &["SELECT 1", write]] {
            let server = with_kit();
            for statement in [INVOICE, function, trigger] {
                sql(&server, statement);
            }
            let (report, code) = case(&[seal], write).run(&server.url(), &[]);
            assert_eq!((&report["verdict"], code), (&"not_fenced".into(), Some(1)), "{report}");
            let paused = row(&report, "own", "paused-in-write");
            assert!(paused["got_through"].as_u64() > Some(0), "{report}");
            let held = row(&report, "own", "equal-token");
            assert_eq!(held["denied"], 0, "it lets its holder work: {report}");
        }
    }
}

#[test]
fn statements_that_are_wrong_are_named_and_leave_nothing() {
    let server = with_kit();
    sql(&server, INVOICE);
    let (report, code) =
        case(&[SEAL], &[GUARD, "UPDATE bill SET total = :value"]).run(&server.url(), &[]);
    assert_eq!((&report["verdict"], code), (&"unfinished".into(), Some(1)), "{report}");
    let why = report["stopped"]["detail"].as_str().unwrap_or_default();
    assert!(why.contains("write, statement 2") && why.contains("42P01"), "{report}");
    assert_eq!(report["stopped"]["code"], "store_refused");
    assert_eq!(sql(&server, "SELECT name FROM invoice"), [""; 0], "it removed its rows");
    let half =
        fence(&["test", "--postgres", &server.url(), "--seal", SEAL, "--read", READ]).output();
    let half = half.expect("the binary is there");
    assert_eq!(half.status.code(), Some(64));
    assert!(text(&half.stderr).contains("--write"), "{}", text(&half.stderr));
}

#[test]
fn statements_for_a_table_in_trigger_mode_share_their_transaction() {
    let server = with_kit();
    let url = server.url();
    sql(&server, INVOICE);
    sql(&server, "SELECT leasehold.protect('invoice', 'name')");
    let context =
        ["SET LOCAL leasehold.resource = :resource", "SET LOCAL leasehold.token = :token"];
    let mut args = vec!["test", "--postgres", &url, "--rounds", "300", "--read", READ];
    args.extend(["--seal", SEAL]);
    for (flag, statement) in [("--setup", SETUP), ("--write", BLIND), ("--cleanup", CLEANUP)] {
        for one in context.iter().chain([&statement]) {
            args.extend([flag, one]);
        }
    }
    let (report, code) = told(&args);
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    assert_eq!(report["left"], serde_json::json!([]));
    assert_eq!(sql(&server, "SELECT name FROM invoice"), [""; 0], "it removed its rows");
    // Without them nothing was made, and nothing is said to be left.
    let plain = ["test", "--postgres", &url, "--read", READ, "--write", BLIND, "--setup", SETUP];
    let (report, _) = told(&plain);
    assert!(report["stopped"]["detail"].to_string().contains("LH003"), "{report}");
    assert_eq!(report["left"], serde_json::json!([]), "{report}");
}

#[test]
fn what_is_wrong_with_a_test_is_named() {
    let server = with_kit();
    let url = server.url();
    sql(&server, INVOICE);
    let blind = ["test", "--postgres", &url, "--rounds", "40", "--setup", SETUP];
    let blind = [&blind[..], &["--cleanup", CLEANUP, "--write", BLIND]].concat();
    let (report, _) = told(&[&blind[..], &["--read", READ]].concat());
    assert_eq!(report["findings"][0]["code"], "no_check", "the worse one first: {report}");
    assert!(codes(&report).contains(&"no_seal"), "{report}");
    let misspelt = READ.replace(":resource", ":resourc");
    let (report, code) = told(&[&blind[..], &["--read", &misspelt]].concat());
    let why = report["stopped"]["detail"].as_str().unwrap_or_default();
    assert!(why.contains(":resourc meant as a parameter"), "{report}");
    assert_eq!(code, Some(64), "{report}");
    let (code, detail, _) = refused(&["test", "--postgres", &url, "--only", "hset"]);
    assert_eq!(code, "usage");
    assert!(detail.contains("passes"), "{detail}");
    let (code, detail, _) =
        refused(&["test", "--postgres", &url, "--only", "guard", "--race", "once"]);
    assert_eq!(code, "usage");
    assert!(detail.contains("two-seals"), "{detail}");
}

#[test]
fn a_resource_that_somebody_uses_is_spared() {
    let server = with_kit();
    let url = server.url();
    sql(&server, INVOICE);
    sql(&server, "INSERT INTO invoice VALUES ('invoice/1', 9, 0)");
    sql(&server, "SELECT leasehold.seal('invoice/2', 34)");
    let statements = ["--read", READ, "--write", OWN_WRITE, "--seal", OWN_SEAL];
    for name in ["invoice/1", "invoice/2"] {
        let mut args = vec!["test", "--postgres", &url, "--resource", name, "--rounds", "20"];
        args.extend(statements);
        let (code, detail, exit) = refused(&args);
        assert_eq!((code.as_str(), exit), ("usage", Some(64)), "{detail}");
        assert!(detail.contains(name) && detail.contains("--overwrite"), "{detail}");
    }
    assert_eq!(sql(&server, "SELECT total, last_token FROM invoice"), ["9"]);
    assert_eq!(sql(&server, "SELECT leasehold.highest_token('invoice/2')"), ["34"]);
    let mut args = vec!["test", "--postgres", &url, "--resource", "invoice/1", "--rounds", "300"];
    args.push("--overwrite");
    args.extend(statements);
    let (report, code) = told(&args);
    assert_eq!(code, Some(0), "{report}");
}

#[test]
fn fences_and_resources_in_redis_are_named_and_spared() {
    let server = Redis::start();
    let url = server.url();
    told(&["install", "--redis", &url]);
    let mut args = vec!["test", "--redis", &url, "--rounds", "200"];
    args.extend(["--read", "GET n:{:resource}"]);
    args.extend(["--seal", "FCALL leasehold_seal 1 fence:{:resource} :token"]);
    args.extend(["--write", "FCALL leasehold_set 2 fence:{:resource} n:{:resource} :token :value"]);
    args.extend(["--setup", "SET n:{:resource} 0"]);
    let (report, _) = told(&[&args[..], &["--cleanup", "DEL n:{:resource}"]].concat());
    assert!(codes(&report).contains(&"fence_keys_stay"), "{report}");
    let huge = ["test", "--redis", &url, "--read", "ECHO 9223372036854775807", "--write", "PING"];
    let (report, code) = told(&huge);
    assert_eq!((&report["stopped"]["code"], code), (&"usage".into(), Some(64)), "{report}");
    let named = [&args[..], &["--resource", "invoice/1"]].concat();
    told(&named);
    let (code, detail, exit) = refused(&named);
    assert_eq!((code.as_str(), exit), ("usage", Some(64)), "{detail}");
    assert!(detail.contains("--overwrite"), "{detail}");
    let (code, detail, _) = refused(&["test", "--redis", &url, "--only", "guard"]);
    assert_eq!(code, "usage");
    assert!(detail.contains("hset"), "{detail}");
}

#[test]
fn what_a_test_leaves_is_told() {
    let server = with_kit();
    let url = server.url();
    sql(&server, INVOICE);
    let args = ["test", "--postgres", &url, "--rounds", "200", "--setup", SETUP, "--read", READ];
    let own = ["--seal", OWN_SEAL, "--write", OWN_WRITE];
    let (report, _) = told(&[&args[..], &own].concat());
    assert!(report["left"].to_string().contains("leasehold-fence-test/4"), "{report}");
    assert!(!codes(&report).contains(&"fence_rows_stay"), "it never used the kit: {report}");
    let (report, _) = told(&[&args[..], &own].concat());
    let why = report["stopped"]["detail"].as_str().unwrap_or_default();
    assert!(why.contains("23505") && why.contains("--cleanup"), "{report}");
    let (report, code) = told(&[&args[..], &own, &["--cleanup", CLEANUP]].concat());
    assert_eq!((&report["left"], code), (&serde_json::json!([]), Some(0)), "{report}");
    let kit = ["--seal", SEAL, "--write", GUARD, "--write", BLIND, "--cleanup", CLEANUP];
    let (report, _) = told(&[&args[..], &kit].concat());
    assert!(codes(&report).contains(&"fence_rows_stay"), "{report}");
}

#[test]
fn a_redis_with_a_hole_is_found_out() {
    let server = Redis::builder()
        .setting("appendfsync", "everysec")
        .setting("maxmemory", "100mb")
        .setting("maxmemory-policy", "allkeys-lru")
        .start();
    let url = server.url();
    told(&["install", "--redis", &url]);
    let check = "EVAL \"if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token')) then \
         return false end return 1\" 1 fence:{:resource} :token";
    for (wanted, write) in [
        ("no_check", &["SET n:{:resource} :value"][..]),
        ("two_steps", &[check, "SET n:{:resource} :value"][..]),
    ] {
        let mut args = vec!["test", "--redis", &url, "--rounds", "100"];
        args.extend(["--setup", "SET n:{:resource} 0", "--read", "GET n:{:resource}"]);
        args.extend(["--cleanup", "DEL n:{:resource} fence:{:resource}"]);
        args.extend(["--seal", "FCALL leasehold_seal 1 fence:{:resource} :token"]);
        args.extend(write.iter().flat_map(|write| ["--write", write]));
        let (report, code) = told(&args);
        assert_eq!((&report["verdict"], code), (&"not_fenced".into(), Some(1)), "{report}");
        for code in [wanted, "eviction", "not_durable"] {
            assert!(codes(&report).contains(&code), "{code}: {report}");
        }
    }
}
