//! Tokens of every width through the statements of a user.

use leasehold_harness::redis::Redis;

use super::{CLEANUP, READ, SEAL, SETUP, codes, refused, row, sql, told, with_kit};

/// How many pairs of tokens there are.
const CROSSINGS: u64 = 21;

/// A table whose column for tokens has the type `kind`.
fn invoices(kind: &str) -> String {
    format!(
        "DROP TABLE IF EXISTS invoice; CREATE TABLE invoice \
         (name text PRIMARY KEY, total integer NOT NULL, last_token {kind} NOT NULL DEFAULT 0)"
    )
}

fn seal(kind: &str) -> String {
    format!(
        "UPDATE invoice SET last_token = :token::{kind} \
         WHERE name = :resource AND last_token <= :token::{kind}"
    )
}

fn write(kind: &str) -> String {
    seal(kind).replace("SET ", "SET total = :value, ")
}

#[test]
fn a_column_that_is_too_narrow_or_compares_text_is_found() {
    let server = with_kit();
    let url = server.url();
    for (kind, first) in [
        ("text", "token 10 after 9"),
        ("varchar(20)", "token 10 after 9"),
        ("smallint", "token 32768 after 32767"),
        ("real", "token 16777217 after 16777216"),
        ("integer", "token 2147483648 after 2147483647"),
        ("numeric(12)", "token 1000000000000 after 999999999999"),
        ("bigint", ""),
        ("double precision", ""),
    ] {
        sql(&server, &invoices(kind));
        let (seal, write) = (seal(kind), write(kind));
        let mut args = vec!["test", "--postgres", &url, "--rounds", "400", "--setup", SETUP];
        args.extend(["--cleanup", CLEANUP, "--read", READ, "--seal", &seal, "--write", &write]);
        args.extend(["--race", "token-widths"]);
        let (report, code) = told(&args);
        let widths = row(&report, "own", "token-widths");
        assert_eq!(widths["rounds"], CROSSINGS, "{kind}: {report}");
        if first.is_empty() {
            assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{kind}: {report}");
            assert_eq!(widths["refused"], CROSSINGS, "every stale write: {report}");
            continue;
        }
        assert_eq!((&report["verdict"], code), (&"not_fenced".into(), Some(1)), "{kind}: {report}");
        assert!(widths["got_through"].as_u64() > Some(0), "{kind}: {report}");
        assert_eq!(report["findings"][0]["code"], "token_width", "{kind}: {report}");
        assert!(report["findings"][0]["detail"].to_string().contains(first), "{kind}: {report}");
        assert_eq!(report["stopped"], leasehold_harness::Value::Null, "{kind}: {report}");
    }
    assert_eq!(sql(&server, "SELECT name FROM invoice"), [""; 0], "it removed its rows");
}

/// The fence keeps what it has seen, so the next test finds that resource worn out.
#[test]
fn each_test_through_the_kit_takes_all_widths_and_leaves_those_of_others_alone() {
    let server = with_kit();
    let url = server.url();
    sql(&server, &invoices("bigint"));
    sql(&server, "SELECT leasehold.seal('invoice/7', 7)");
    let mut args = vec!["test", "--postgres", &url, "--rounds", "400", "--setup", SETUP];
    args.extend(["--cleanup", CLEANUP, "--read", READ, "--seal", SEAL]);
    args.extend(["--write", "SELECT leasehold.guard(:resource, :token)"]);
    args.extend(["--write", "UPDATE invoice SET total = :value WHERE name = :resource"]);
    args.extend(["--race", "token-widths", "--isolation", "all"]);
    for tests in ["1", "2", "3"] {
        let (report, code) = told(&args);
        assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
        let widths = row(&report, "own", "token-widths");
        assert_eq!((&widths["rounds"], &widths["denied"]), (&CROSSINGS.into(), &0.into()));
        let worn = "SELECT count(*) FROM leasehold.fence WHERE token > 9007199254740000 \
             AND resource LIKE 'leasehold-fence-test/widths%'";
        assert_eq!(sql(&server, worn), [tests]);
    }
    let spared = "SELECT max(token) < 10000 FROM leasehold.fence \
         WHERE resource NOT LIKE 'leasehold-fence-test/widths%'";
    assert_eq!(sql(&server, spared), ["t"]);
    assert_eq!(sql(&server, "SELECT leasehold.highest_token('invoice/7')"), ["7"]);
    // Not through a resource of the user's, even one that may be overwritten.
    args.extend(["--resource", "invoice/7", "--overwrite"]);
    let (code, detail, exit) = refused(&args);
    assert_eq!((code.as_str(), exit), ("usage", Some(64)), "{detail}");
    assert_eq!(sql(&server, "SELECT leasehold.highest_token('invoice/7')"), ["7"]);
}

/// Lua prints a number with fourteen digits, and compares what it is not told to read as a number
/// as text.
#[test]
fn a_script_that_compares_text_or_prints_numbers_is_found() {
    let server = Redis::start();
    let url = server.url();
    let text = "if ARGV[1] < seen then return false end redis.call('SET', KEYS[1], ARGV[1])";
    let printed = "local n = tonumber(ARGV[1]) if n < (tonumber(seen) or 0) then return false end \
         redis.call('SET', KEYS[1], tostring(n))";
    let sound = "if tonumber(ARGV[1]) < (tonumber(seen) or 0) then return false end \
         redis.call('SET', KEYS[1], ARGV[1])";
    for (check, first) in [
        (text, "token 10 after 9"),
        (printed, "token 9007199254740891 after 9007199254740890"),
        (sound, ""),
    ] {
        let script = |then: &str| {
            format!(
                "EVAL \"local seen = redis.call('GET', KEYS[1]) or '' {check} {then} return 1\" \
                 2 t:{{:resource}} n:{{:resource}} :token :value"
            )
        };
        let (seal, write) = (script(""), script("redis.call('SET', KEYS[2], ARGV[2])"));
        let seal = seal.replace("return false", "return redis.error_reply('STALETOKEN {}')");
        let mut args = vec!["test", "--redis", &url, "--rounds", "400", "--race", "token-widths"];
        args.extend(["--setup", "SET n:{:resource} 0", "--read", "GET n:{:resource}"]);
        args.extend(["--cleanup", "DEL n:{:resource} t:{:resource}"]);
        args.extend(["--seal", &seal, "--write", &write]);
        let (report, code) = told(&args);
        assert_eq!(row(&report, "own", "token-widths")["rounds"], CROSSINGS, "{report}");
        if first.is_empty() {
            assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
            continue;
        }
        assert_eq!((&report["verdict"], code), (&"not_fenced".into(), Some(1)), "{report}");
        assert!(codes(&report).contains(&"token_width"), "{report}");
        assert!(report["findings"][0]["detail"].to_string().contains(first), "{report}");
    }
}
