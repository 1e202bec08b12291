//! What is installed: installing and looking at it, every part in every race, and who may do it.

use leasehold_harness::Value;
use leasehold_harness::postgres::Postgres;
use leasehold_harness::redis::Redis;

use super::{codes, fence, left_over, refused, row, sql, text, told, with_kit};

/// Ten thousand rounds of holders that seal, read and write, and the same with the two mistakes.
#[allow(clippy::print_stdout)]
fn ten_thousand_rounds(level: &str) {
    let server = with_kit();
    let url = server.url();
    let mut args = vec!["test", "--postgres", &url, "--rounds", "10000", "--isolation", level];
    args.extend(["--race", "updates", "--race", "read-before-seal"]);
    args.extend(["--only", "guard", "--only", "none"]);
    let (report, code) = told(&args);
    for row in report["races"].as_array().expect("a list of races") {
        let [schema, race] = ["schema", "race"].map(|name| row[name].as_str().unwrap_or_default());
        println!(
            "{level}, {schema}, {race}: {} rounds, {} got through",
            row["rounds"], row["got_through"]
        );
        assert_eq!(row["rounds"], 10_000, "or its losses could not be compared: {row}");
    }
    let sound = row(&report, "guard", "updates");
    assert_eq!((&sound["got_through"], &sound["denied"]), (&0.into(), &0.into()), "{report}");
    assert!(sound["refused"].as_u64() > Some(0), "nobody was stale: {report}");
    for (schema, race) in [("guard", "read-before-seal"), ("none", "updates")] {
        let lost = row(&report, schema, race)["got_through"].as_u64();
        assert!(lost > Some(0), "{schema}, {race} lost nothing: {report}");
    }
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    assert_eq!(left_over(&server), [""; 0]);
}

#[test]
fn ten_thousand_rounds_read_committed() {
    ten_thousand_rounds("read-committed");
}

#[test]
fn ten_thousand_rounds_repeatable_read() {
    ten_thousand_rounds("repeatable-read");
}

#[test]
fn ten_thousand_rounds_serializable() {
    ten_thousand_rounds("serializable");
}

#[test]
fn every_part_of_the_kit_holds_in_every_race() {
    let server = with_kit();
    let url = server.url();
    let (report, code) =
        told(&["test", "--postgres", &url, "--rounds", "60", "--isolation", "all"]);
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    for part in ["guard", "passes", "trigger", "conditional", "strict"] {
        for race in ["paused-holder", "on-the-wire", "updates", "two-seals"] {
            assert_eq!(row(&report, part, race)["rounds"], 60, "{part}, {race}");
        }
        assert_eq!(row(&report, part, "paused-holder")["refused"], 60, "{part}");
    }
    assert_eq!(row(&report, "strict", "once")["refused"], 120, "one of three writes passes");
    assert_eq!(row(&report, "guard", "equal-token")["refused"], 0);
    // The server of the tests does not sync.
    assert!(codes(&report).contains(&"fsync_off"), "{report}");
    assert_eq!(report["left"], serde_json::json!([]));
    assert_eq!(left_over(&server), [""; 0]);
}

/// Triggers do not fire in such sessions, unless they are told to fire always.
#[test]
fn whoever_can_write_as_a_replica_is_named() {
    let server = with_kit();
    let url = server.url();
    for role in ["filler", "applier"] {
        sql(&server, &format!("CREATE ROLE {role} LOGIN"));
    }
    let named = || {
        let (status, code) = told(&["status", "--postgres", &url]);
        assert_eq!(code, Some(0), "a warning is no hole: {status}");
        let findings = status["findings"].as_array().cloned().unwrap_or_default();
        let replicas = findings.iter().filter(|finding| finding["code"] == "replica_role");
        let details = replicas.filter_map(|finding| finding["detail"].as_str());
        details.filter_map(|detail| detail.split(' ').next()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(named(), [""; 0]);
    sql(&server, "ALTER ROLE filler SET session_replication_role = replica");
    assert_eq!(named(), ["filler"]);
    let since_15 = "SELECT current_setting('server_version_num')::integer >= 150000";
    if sql(&server, since_15) == ["t"] {
        sql(&server, "GRANT SET ON PARAMETER session_replication_role TO applier");
        assert_eq!(named(), ["filler", "applier"]);
    }
    sql(&server, "ALTER ROLE filler RESET session_replication_role");
    sql(&server, "ALTER DATABASE postgres SET session_replication_role = replica");
    let (status, code) = told(&["status", "--postgres", &url]);
    assert_eq!(code, Some(1), "this session is one as well: {status}");
    assert!(codes(&status).contains(&"triggers_off"), "{status}");
    assert!(status["findings"].to_string().contains("every role begins its sessions"), "{status}");
}

#[test]
fn a_part_alone_is_shown_by_the_control_that_runs_along() {
    let server = with_kit();
    let url = server.url();
    let test = ["test", "--postgres", &url, "--rounds", "300"];
    let (report, code) = told(&[&test[..], &["--only", "guard", "--race", "two-seals"]].concat());
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    assert!(row(&report, "guard", "read-before-seal")["got_through"].as_u64() > Some(0));
    let (report, code) = told(&[&test[..], &["--only", "none"]].concat());
    assert_eq!((&report["verdict"], code), (&"unproven".into(), Some(1)), "{report}");
}

#[test]
fn the_library_for_redis_holds_in_every_race() {
    let server = Redis::start();
    let url = server.url();
    let (code, detail, _) = refused(&["test", "--redis", &url]);
    assert_eq!(code, "store_refused", "{detail}");
    let (installed, code) = told(&["install", "--redis", &url]);
    assert_eq!((&installed["before"], code), (&Value::Null, Some(0)), "{installed}");
    let (report, code) = told(&["test", "--redis", &url, "--rounds", "400"]);
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    for part in ["set", "hset", "call", "once"] {
        assert_eq!(row(&report, part, "paused-holder")["refused"], 400, "{part}");
        assert_eq!(row(&report, part, "token-widths")["refused"], 21, "{part}");
    }
    assert_eq!(row(&report, "once", "once")["refused"], 800);
    assert!(row(&report, "none", "updates")["got_through"].as_u64() > Some(0), "{report}");
    assert_eq!(codes(&report), [""; 0], "a Redis that loses nothing: {report}");
    let (removed, _) = told(&["remove", "--redis", &url]);
    assert_eq!(removed["before"], installed["version"]);
    let (status, _) = told(&["status", "--redis", &url]);
    assert_eq!(status["version"], Value::Null, "{status}");
}

#[test]
fn a_user_of_redis_with_the_rights_of_the_guide_looks_and_tests() {
    let server = Redis::start();
    let url = server.url();
    told(&["install", "--redis", &url]);
    let guide = include_str!("../../../plugins/fences/redis/README.md");
    let selectors = [
        "(+fcall ~fence:* ~{invoice/*)",
        "(+hmget +hset +exists +persist ~fence:*)",
        "(+get +set +del ~{invoice/*)",
        "(+fcall +hmget +hset +hget +exists +persist +get +set +setex +del \
         ~fence:{leasehold-fence-test/* ~{leasehold-fence-test/*)",
    ];
    assert!(selectors.iter().all(|selector| guide.contains(selector)), "as the guide has them");
    let mut set = redis::cmd("ACL");
    set.arg("SETUSER").arg("app").arg("on").arg(">secret").arg("resetkeys").arg("-@all");
    let mut connection =
        redis::Client::open(url.as_str()).and_then(|client| client.get_connection()).expect("up");
    let () = set.clone().arg(&selectors[..3]).query(&mut connection).expect("rules");
    let as_app = url.replace("redis://", "redis://app:secret@");
    let (status, code) = told(&["status", "--redis", &as_app]);
    assert_eq!(code, Some(0), "{status}");
    assert!(codes(&status).contains(&"settings_hidden"), "{status}");
    let (report, _) = told(&["test", "--redis", &as_app, "--rounds", "40"]);
    let why = report["stopped"]["detail"].as_str().unwrap_or_default();
    assert!(why.contains(selectors[3]), "{report}");
    let () = set.arg(&selectors[..]).query(&mut connection).expect("rules");
    let (report, code) = told(&["test", "--redis", &as_app, "--rounds", "400"]);
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    assert_eq!(report["left"], serde_json::json!([]));
}

#[test]
fn a_role_without_rights_learns_what_it_lacks() {
    let server = with_kit();
    sql(&server, "CREATE ROLE app LOGIN");
    let url = server.url().replace("postgres@", "app@");
    let (_, detail, _) = refused(&["install", "--postgres", &url]);
    assert!(detail.contains("42501"), "{detail}");
    let (code, detail, exit) = refused(&["test", "--postgres", &url]);
    assert_eq!((code.as_str(), exit), ("store_refused", Some(1)));
    assert!(detail.contains("42501") && detail.contains("leasehold"), "{detail}");
    told(&["install", "--postgres", &server.url(), "--grant-to", "app"]);
    let (report, code) = told(&["test", "--postgres", &url]);
    assert_eq!((&report["verdict"], code), (&"unfinished".into(), Some(1)), "{report}");
    let why = report["stopped"]["detail"].as_str().unwrap_or_default();
    assert!(why.contains("CREATE on the database") && why.contains("42501"), "{report}");
    // Who is not a superuser has no way around the fence.
    let found = codes(&report);
    assert!(!found.contains(&"superuser") && !found.contains(&"fence_writable"), "{report}");
    sql(&server, "GRANT CREATE ON DATABASE postgres TO app");
    let (report, code) = told(&["test", "--postgres", &url, "--rounds", "60"]);
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    assert_eq!(left_over(&server), [""; 0]);
}

#[test]
fn without_the_kit_there_is_nothing_to_test() {
    let server = Postgres::start();
    let (code, detail, exit) = refused(&["test", "--postgres", &server.url()]);
    assert_eq!((code.as_str(), exit), ("store_refused", Some(1)));
    assert!(detail.contains("leasehold fence install"), "{detail}");
    let (code, _, exit) = refused(&["test", "--postgres", "postgres://a@127.0.0.1:1/x"]);
    assert_eq!((code.as_str(), exit), ("store_unavailable", Some(69)));
    let (code, detail, exit) = refused(&["status"]);
    assert_eq!((code.as_str(), exit), ("usage", Some(64)));
    assert!(detail.contains("LEASEHOLD_POSTGRES"), "{detail}");
}

#[test]
fn the_kit_is_installed_shown_and_removed() {
    let server = Postgres::start();
    let url = server.url();
    sql(&server, "CREATE ROLE \"the app\"");
    let (installed, _) = told(&["install", "--postgres", &url, "--grant-to", "the app"]);
    let version = installed["version"].as_i64().expect("a version");
    let (again, code) = told(&["install", "--postgres", &url]);
    assert_eq!((&again["before"], code), (&version.into(), Some(0)), "{again}");
    sql(&server, "CREATE TABLE bill (name text)");
    sql(&server, "SELECT leasehold.protect('bill'), leasehold.seal('bill/1', 7)");
    sql(&server, "GRANT UPDATE ON leasehold.fence TO PUBLIC");
    let (status, _) = told(&["status", "--postgres", &url]);
    assert_eq!((&status["version"], &status["shipped"]), (&version.into(), &version.into()));
    assert_eq!(status["granted"], serde_json::json!(["the app"]), "{status}");
    assert_eq!(status["protected"][0]["table"], "public.bill", "{status}");
    assert!(codes(&status).contains(&"fence_writable"), "{status}");
    let (code, detail, _) = refused(&["remove", "--postgres", &url]);
    assert_eq!(code, "store_refused");
    assert!(detail.contains("bill") && detail.contains("--unprotect"), "{detail}");
    let (removed, code) = told(&["remove", "--postgres", &url, "--unprotect"]);
    assert_eq!((&removed["tokens_forgotten"], code), (&false.into(), Some(0)), "{removed}");
    let (status, code) = told(&["status", "--postgres", &url]);
    assert_eq!((&status["tokens_kept"], code), (&true.into(), Some(1)), "{status}");
    let (installed, _) = told(&["install", "--postgres", &url]);
    assert_eq!(installed["taken_over"], 1, "{installed}");
    assert_eq!(sql(&server, "SELECT leasehold.highest_token('bill/1')"), ["7"]);
    sql(&server, "CREATE VIEW lent AS SELECT leasehold.version()");
    let (_, detail, _) = refused(&["remove", "--postgres", &url]);
    assert!(detail.contains("lent") && !detail.contains("CASCADE"), "{detail}");
    sql(&server, "DROP VIEW lent");
    for (forgotten, tokens) in [(true, 1.into()), (false, Value::Null)] {
        let (removed, _) = told(&["remove", "--postgres", &url, "--forget-tokens"]);
        assert_eq!(removed["tokens_forgotten"], forgotten, "{removed}");
        assert_eq!(removed["tokens"], tokens, "{removed}");
    }
    let (status, code) = told(&["status", "--postgres", &url]);
    assert_eq!((&status["version"], code), (&Value::Null, Some(1)), "{status}");
    assert_eq!(status["tokens_kept"], false, "{status}");
    assert_eq!(sql(&server, "SELECT 1 FROM pg_namespace WHERE nspname = 'leasehold'"), [""; 0]);
}

/// A fence that is gone: a plain removal would make room for an empty one.
fn is_given_up_only_when_told_so(url: &str) {
    let (code, detail, _) = refused(&["remove", "--postgres", url]);
    assert_eq!(code, "store_refused", "{detail}");
    assert!(detail.contains("fence is gone") && detail.contains("--forget-tokens"), "{detail}");
}

#[test]
fn a_removal_claims_nothing_that_did_not_happen() {
    for (deed, kept) in [
        ("DROP TABLE leasehold.kit, leasehold.fence", false),
        ("DROP TABLE leasehold.kit; DROP FUNCTION leasehold.version()", true),
    ] {
        let server = with_kit();
        let url = server.url();
        sql(&server, &format!("SELECT leasehold.seal('r', 50); {deed}"));
        if kept {
            let (removed, _) = told(&["remove", "--postgres", &url]);
            assert_eq!((&removed["before"], &removed["tokens_kept"]), (&2.into(), &true.into()));
            assert_eq!(removed["tokens_forgotten"], false, "{removed}");
        } else {
            is_given_up_only_when_told_so(&url);
        }
        let (forgotten, _) = told(&["remove", "--postgres", &url, "--forget-tokens"]);
        assert_eq!(forgotten["tokens_forgotten"], kept, "{forgotten}");
        assert_eq!(forgotten["tokens_kept"], false, "{forgotten}");
        assert_eq!(sql(&server, "SELECT 1 FROM pg_class WHERE relname = 'fence'"), [""; 0]);
        told(&["install", "--postgres", &url]);
        sql(&server, "DROP TABLE leasehold.fence");
        is_given_up_only_when_told_so(&url);
        let output = fence(&["remove", "--postgres", &url, "--forget-tokens"]).output();
        let said = text(&output.expect("it is there").stdout);
        assert!(said.contains("no highest tokens any more to forget"), "{said}");
        assert_eq!(sql(&server, "SELECT 1 FROM pg_namespace WHERE nspname = 'leasehold'"), [""; 0]);
    }
}

#[test]
fn a_disabled_trigger_is_a_hole_and_the_advice_takes_nothing_away() {
    let server = with_kit();
    let url = server.url();
    sql(&server, "CREATE TABLE \"Größe\" (\"für\" text, n integer)");
    sql(&server, "SELECT leasehold.protect('\"Größe\"', 'für', true)");
    let (before, code) = told(&["status", "--postgres", &url]);
    assert_eq!(code, Some(0), "{before}");
    assert_eq!(
        (&before["protected"][0]["column"], &before["protected"][0]["strict"]),
        (&"für".into(), &true.into())
    );
    for trigger in ["leasehold_fence", "leasehold_resource_update"] {
        sql(&server, &format!("ALTER TABLE \"Größe\" DISABLE TRIGGER {trigger}"));
        let (status, code) = told(&["status", "--postgres", &url]);
        assert_eq!(code, Some(1), "{status}");
        assert!(codes(&status).contains(&"trigger_disabled"), "{trigger}: {status}");
        let call = status["protected"][0]["call"].as_str().unwrap_or_default();
        let advice = status["findings"].to_string().replace("\\\"", "\"");
        assert!(advice.contains(call), "{call} is not in {advice}");
        sql(&server, call);
        let (after, code) = told(&["status", "--postgres", &url]);
        assert_eq!((&after["protected"], code), (&before["protected"], Some(0)), "{trigger}");
    }
}

#[test]
fn what_would_be_run_can_be_printed_and_is_the_script() {
    for (kind, script) in [
        ("postgres", include_str!("../../../plugins/fences/postgres/install.sql")),
        ("redis", include_str!("../../../plugins/fences/redis/leasehold.lua")),
    ] {
        let output = fence(&["install", "--print", "--kind", kind]).output().expect("it is there");
        assert_eq!(text(&output.stdout), script, "{kind}");
    }
}

#[test]
fn it_explains_itself() {
    for part in [&["--help"][..], &["test", "--help"]] {
        let output = fence(part).output().expect("the binary is there");
        let help = text(&output.stdout);
        assert!(help.contains("Example") && help.contains("Exit codes"), "{help}");
        assert!(!help.contains("--server"), "it needs no server: {help}");
        assert!(help.contains("CREATE on the database") || help.contains("GRANT CREATE"), "{help}");
    }
}
