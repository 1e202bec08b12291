//! One session: what passes, what is refused, and how the refusal reads.

use leasehold_harness::json;

use super::fixture::{installed, number, refused, refused_as, run, with_invoices};

const HIGHEST: i64 = 9_007_199_254_740_991;

#[tokio::test]
async fn a_stale_write_is_refused_and_both_tokens_are_named() {
    let (_server, admin) = with_invoices().await;
    assert_eq!(number(&admin, "SELECT leasehold.seal('invoice/42', 34)").await, None);
    let write =
        "BEGIN; SELECT leasehold.guard('invoice/42', 33); UPDATE invoice SET total = 1; COMMIT";
    let (state, detail) = refused(&admin, write).await;
    run(&admin, "ROLLBACK").await;
    assert_eq!(state, "LH001");
    let named =
        json!({"code": "stale_token", "resource": "invoice/42", "token": 33, "highest_token": 34});
    assert_eq!(detail, named);
    assert_eq!(refused(&admin, "SELECT leasehold.seal('invoice/42', 33)").await, (state, named));
    assert_eq!(number(&admin, "SELECT max(total) FROM invoice").await, Some(0));
}

#[tokio::test]
async fn a_write_can_carry_its_guard() {
    let (_server, admin) = with_invoices().await;
    let write = |token: i64| {
        format!(
            "UPDATE invoice SET total = {token} WHERE id = 1 AND leasehold.passes('invoice/1', {token})"
        )
    };
    // Also for a resource that was never seen, of which the guard has nothing to answer.
    for token in [33, 33, 34] {
        let updated = admin.execute(&write(token), &[]).await.expect("it passes");
        assert_eq!(updated, 1, "{token}");
    }
    let (state, detail) = refused(&admin, &write(33)).await;
    assert_eq!((state.as_str(), &detail["highest_token"]), ("LH001", &json!(34)));
    assert_eq!(number(&admin, "SELECT max(total) FROM invoice").await, Some(34));
}

#[tokio::test]
async fn an_equal_token_passes_and_a_newer_one_raises_the_highest() {
    let (_server, admin) = installed().await;
    assert_eq!(number(&admin, "SELECT leasehold.guard('a', 34)").await, None);
    assert_eq!(number(&admin, "SELECT leasehold.guard('a', 34)").await, Some(34));
    assert_eq!(number(&admin, "SELECT leasehold.seal('a', 34)").await, Some(34));
    assert_eq!(number(&admin, "SELECT leasehold.guard('a', 40)").await, Some(34));
    assert_eq!(number(&admin, "SELECT leasehold.highest_token('a')").await, Some(40));
    assert_eq!(number(&admin, "SELECT leasehold.highest_token('b')").await, None);
}

#[tokio::test]
async fn in_strict_mode_a_token_passes_once_and_a_seal_is_no_use() {
    let (_server, admin) = installed().await;
    run(&admin, "SELECT leasehold.seal('a', 5)").await;
    assert_eq!(number(&admin, "SELECT leasehold.guard('a', 5, true)").await, Some(5));
    let (state, detail) = refused(&admin, "SELECT leasehold.guard('a', 5, true)").await;
    assert_eq!(state, "LH002");
    assert_eq!(
        detail,
        json!({"code": "token_used", "resource": "a", "token": 5, "highest_token": 5})
    );
    // The other mode does not count uses, and does not forget those that were counted.
    run(&admin, "SELECT leasehold.guard('a', 5); SELECT leasehold.guard('a', 5, false)").await;
    assert_eq!(refused_as(&admin, "SELECT leasehold.guard('a', 5, true)").await, "LH002");
    assert_eq!(refused_as(&admin, "SELECT leasehold.guard('a', 4, true)").await, "LH001");
    run(&admin, "SELECT leasehold.guard('a', 6, true); SELECT leasehold.guard('b', 1, true)").await;
    assert_eq!(refused_as(&admin, "SELECT leasehold.guard('b', 1, true)").await, "LH002");
}

#[tokio::test]
async fn a_use_that_was_rolled_back_is_no_use() {
    let (_server, admin) = installed().await;
    run(&admin, "BEGIN; SELECT leasehold.guard('a', 5, true); ROLLBACK").await;
    run(&admin, "BEGIN; SAVEPOINT s; SELECT leasehold.guard('a', 5, true); ROLLBACK TO s; COMMIT")
        .await;
    run(&admin, "SELECT leasehold.guard('a', 5, true)").await;
}

#[tokio::test]
async fn the_token_of_a_shared_grant_neither_seals_nor_passes() {
    let (_server, admin) = installed().await;
    for call in [
        "seal('a', 5, 'shared')",
        "guard('a', 5, false, 'shared')",
        "guard('a', 5, true, 'shared')",
    ] {
        let (state, detail) = refused(&admin, &format!("SELECT leasehold.{call}")).await;
        assert_eq!(state, "LH005", "{call}");
        assert_eq!(detail, json!({"code": "shared_token", "resource": "a", "token": 5}));
    }
    assert_eq!(number(&admin, "SELECT leasehold.highest_token('a')").await, None);
    run(&admin, "SELECT leasehold.seal('a', 5, 'exclusive')").await;
    for call in [
        "seal('a', 5, 'other')",
        "seal('a', 5, NULL)",
        "guard('a', 5, NULL)",
        "guard('a', 5, true, NULL)",
    ] {
        assert_eq!(
            refused_as(&admin, &format!("SELECT leasehold.{call}")).await,
            "LH004",
            "{call}"
        );
    }
}

#[tokio::test]
async fn a_call_without_a_resource_or_a_token_is_refused_and_not_answered_with_null() {
    let (_server, admin) = installed().await;
    for arguments in ["NULL, 5", "'a', NULL", "NULL, NULL"] {
        for call in ["seal", "guard"] {
            let call = format!("SELECT leasehold.{call}({arguments})");
            assert_eq!(refused_as(&admin, &call).await, "LH003", "{call}");
        }
        let call = format!("SELECT leasehold.guard({arguments}, true)");
        assert_eq!(refused_as(&admin, &call).await, "LH003", "{call}");
    }
}

#[tokio::test]
async fn a_token_lies_between_one_and_the_largest_exact_number() {
    let (_server, admin) = installed().await;
    for token in [i64::MIN, -1, 0, HIGHEST + 1, i64::MAX] {
        for call in [
            format!("seal('a', {token})"),
            format!("guard('a', {token})"),
            format!("guard('a', {token}, true)"),
        ] {
            let call = format!("SELECT leasehold.{call}");
            let call = call.replace(&i64::MIN.to_string(), "'-9223372036854775808'");
            assert_eq!(refused_as(&admin, &call).await, "LH004", "{call}");
        }
    }
    assert_eq!(number(&admin, "SELECT count(*) FROM leasehold.fence").await, Some(0));
    run(&admin, &format!("SELECT leasehold.guard('a', 1); SELECT leasehold.guard('a', {HIGHEST})"))
        .await;
    let (_, detail) =
        refused(&admin, &format!("SELECT leasehold.guard('a', {})", HIGHEST - 1)).await;
    assert_eq!(detail["highest_token"], HIGHEST);
}

#[tokio::test]
async fn every_name_that_a_lock_can_have_is_a_name_here_and_no_two_are_mixed_up() {
    let (_server, admin) = installed().await;
    let long = "é".repeat(256);
    let names = [
        "a",
        "A",
        "a ",
        "a/../b",
        "..",
        "%41",
        "%",
        "'; DROP TABLE x; --",
        "\"quoted\"",
        "\\",
        "$1",
        "платёж/№ 7",
        "日本語",
        "e\u{301}",
        "é",
        "ß",
        "ss",
        &long,
    ];
    for (at, name) in names.iter().enumerate() {
        let token = at as i64 + 1;
        let before = admin.query_one("SELECT leasehold.guard($1, $2)", &[name, &token]).await;
        assert_eq!(before.expect(name).get::<_, Option<i64>>(0), None, "{name} was seen before");
        let stale =
            admin.query_one("SELECT leasehold.guard($1, $2)", &[name, &(token - 1).max(1)]).await;
        match stale {
            Ok(_) => assert_eq!(token, 1, "{name}"),
            Err(error) => {
                let detail =
                    error.as_db_error().and_then(|error| error.detail()).expect("there is one");
                let detail: leasehold_harness::Value = detail.parse().expect("it is JSON");
                assert_eq!(detail["resource"], **name);
            }
        }
    }
    let count = number(&admin, "SELECT count(*) FROM leasehold.fence").await;
    assert_eq!(count, Some(names.len() as i64));
}

#[tokio::test]
async fn what_is_no_name_is_refused_and_leaves_no_trace() {
    let (_server, admin) = installed().await;
    let long = "é".repeat(256) + "x";
    let huge = "x".repeat(1 << 20);
    for name in ["", "a\nb", "\u{1}", "\u{7f}", "\u{85}", "tab\t", &long, &huge] {
        for call in
            ["leasehold.seal($1, 5)", "leasehold.guard($1, 5)", "leasehold.guard($1, 5, true)"]
        {
            let error = admin.query_one(&format!("SELECT {call}"), &[&name]).await;
            let error = error.expect_err("it is no name");
            assert_eq!(
                super::fixture::state(&error),
                "LH004",
                "{call} {:?}",
                &name[..name.len().min(20)]
            );
        }
    }
    // PostgreSQL itself has no text with a NUL.
    assert!(admin.query_one("SELECT leasehold.guard($1, 5)", &[&"a\0b"]).await.is_err());
    assert_eq!(number(&admin, "SELECT count(*) FROM leasehold.fence").await, Some(0));
}

#[tokio::test]
async fn a_name_from_a_column_with_another_collation_is_the_same_name() {
    let (_server, admin) = installed().await;
    run(&admin, "CREATE TABLE named (name text COLLATE \"POSIX\"); INSERT INTO named VALUES ('a')")
        .await;
    run(&admin, "SELECT leasehold.guard(name, 5), leasehold.seal(name, 5), leasehold.guard(name, 5, true) FROM named").await;
    assert_eq!(number(&admin, "SELECT leasehold.highest_token(name) FROM named").await, Some(5));
    assert_eq!(refused_as(&admin, "SELECT leasehold.guard(name, 4) FROM named").await, "LH001");
}

#[tokio::test]
async fn the_fence_forgets_nothing_by_accident() {
    let (_server, admin) = installed().await;
    run(&admin, "SELECT leasehold.seal('a', 5)").await;
    for deed in [
        "DELETE FROM leasehold.fence",
        "TRUNCATE leasehold.fence",
        "DELETE FROM leasehold.fence WHERE false",
    ] {
        assert_eq!(refused_as(&admin, deed).await, "23001", "{deed}");
        let even_so = format!("SET session_replication_role = replica; {deed}");
        assert_eq!(refused_as(&admin, &even_so).await, "23001", "{even_so}");
        run(&admin, "RESET session_replication_role").await;
    }
    assert_eq!(number(&admin, "SELECT leasehold.highest_token('a')").await, Some(5));
}
