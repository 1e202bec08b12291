//! The Redis library in a real server.

mod crash;
mod hostile;
mod keeping;
mod limits;
mod races;
mod refusals;

use leasehold_harness::redis::Redis;
use leasehold_harness::{Value, json};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError, ToRedisArgs};

/// The library as it is shipped.
const LIBRARY: &str = include_str!("../../../plugins/fences/redis/leasehold.lua");

/// The fence of the resource that most tests are about, and a key in the same slot for its data.
const FENCE: &str = "fence:{invoice/42}";
const DATA: &str = "{invoice/42}";

/// A Redis that loses nothing, with the library.
async fn fenced() -> (Redis, Connection) {
    with_library(Redis::start()).await
}

/// A Redis that keeps nothing on disk, with the library: for races, which need speed.
async fn fenced_in_memory() -> (Redis, Connection) {
    with_library(Redis::builder().setting("appendonly", "no").start()).await
}

async fn with_library(redis: Redis) -> (Redis, Connection) {
    let mut connection = Connection::open(&redis).await;
    connection.load(LIBRARY).await;
    (redis, connection)
}

/// What a function or a command answered.
type Answer<T> = Result<T, RedisError>;

/// A connection that nobody shares.
struct Connection(MultiplexedConnection);

impl Connection {
    async fn open(redis: &Redis) -> Self {
        Self::open_url(&redis.url()).await
    }

    async fn open_url(url: &str) -> Self {
        let client = redis::Client::open(url).expect("the address is well formed");
        // The limit of the client library on an answer is short of what a loaded machine needs.
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        Self(connection.expect("Redis takes a connection"))
    }

    /// One command, given as its words.
    async fn run<T: FromRedisValue>(&mut self, words: &[impl ToRedisArgs]) -> Answer<T> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query_async(&mut self.0).await
    }

    /// A function of the library, its keys and its arguments.
    async fn call<T: FromRedisValue>(
        &mut self,
        function: &str,
        keys: &[&str],
        args: &[&str],
    ) -> Answer<T> {
        let mut command = redis::cmd("FCALL");
        command.arg(function).arg(keys.len()).arg(keys).arg(args);
        command.query_async(&mut self.0).await
    }

    async fn load(&mut self, library: &str) {
        let name: String =
            self.run(&["FUNCTION", "LOAD", "REPLACE", library]).await.expect("loads");
        assert_eq!(name, "leasehold");
    }

    async fn seal(&mut self, token: u64) -> Answer<Option<u64>> {
        self.call("leasehold_seal", &[FENCE], &[&token.to_string()]).await
    }

    async fn set(&mut self, token: u64, value: &str) -> Answer<()> {
        self.call("leasehold_set", &[FENCE, DATA], &[&token.to_string(), value]).await
    }

    async fn highest(&mut self) -> Option<u64> {
        self.call("leasehold_highest", &[FENCE], &[]).await.expect("reading is always allowed")
    }

    async fn data(&mut self) -> Option<String> {
        self.run(&["GET", DATA]).await.expect("the data is text")
    }
}

/// The word and the JSON of a refusal.
#[track_caller]
fn refusal<T: std::fmt::Debug>(answer: Answer<T>) -> (String, Value) {
    let error = answer.expect_err("it is refused");
    let word = error.code().unwrap_or_default().to_owned();
    let json = error.detail().unwrap_or_default();
    let json = json.parse().unwrap_or_else(|_| panic!("{word} is followed by JSON: {json}"));
    (word, json)
}

/// A refusal that names the resource and both tokens, and nothing else.
#[track_caller]
fn beaten<T: std::fmt::Debug>(answer: Answer<T>, word: &str, token: u64, highest: u64) {
    let code = if word == "STALETOKEN" { "stale_token" } else { "token_used" };
    let expected = json!({
        "code": code, "resource": "invoice/42", "token": token, "highest_token": highest
    });
    assert_eq!(refusal(answer), (word.to_owned(), expected));
}

/// A refusal that names no tokens, by its word.
#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Answer<T>, word: &str) {
    let (found, json) = refusal(answer);
    assert_eq!(found, word, "{json}");
    let code = json["code"].as_str().expect("a code").replace('_', "").to_uppercase();
    assert_eq!(code, word, "word and code say the same");
    assert!(json["detail"].is_string(), "{json}");
}
