//! Large bodies, many connections, and what the way through costs.

#![allow(clippy::print_stdout, reason = "what was measured is for whoever runs the tests")]

use super::{put, service, trusting};
use leasehold_harness::nginx::Nginx;
use leasehold_harness::{Client, within};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const BODY_BYTES: usize = 512 * 1024 * 1024;
/// What the process may grow by while it passes on a body, whatever the length of that.
const GROWTH_KIB_MAX: u64 = 32 * 1024;

#[test]
fn half_a_gigabyte_goes_through_and_is_never_held() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).start();
    assert_eq!(proxy.client().get("/warm-up").status, 404);
    let before = peak_kib(proxy.pid());

    let mut stream = TcpStream::connect(proxy.addr()).expect("it listens");
    let head = format!(
        "PUT /large HTTP/1.1\r\nHost: a\r\nFencing-Resource: r\r\nFencing-Token: 1\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let piece: Vec<u8> = (0..1024 * 1024).map(|at| (at % 251) as u8).collect();
    for _ in 0..BODY_BYTES / piece.len() {
        stream.write_all(&piece).expect("sent");
    }
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 201");
    let stored = std::fs::metadata(nginx.file("large")).expect("it is stored").len();
    assert_eq!(stored, BODY_BYTES as u64);

    let mut stream = TcpStream::connect(proxy.addr()).expect("it listens");
    let get = b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(get).expect("sent");
    let read = std::io::copy(&mut stream, &mut std::io::sink()).expect("all of it");
    assert!(read > BODY_BYTES as u64, "{read} bytes came back");
    let grown = peak_kib(proxy.pid()).saturating_sub(before);
    println!("512 MiB each way: the proxy's memory peaked {grown} KiB above {before} KiB");
    assert!(grown < GROWTH_KIB_MAX, "it grew by {grown} KiB");
}

#[test]
fn a_thousand_connections_write_at_once() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).start();
    let mut clients: Vec<Client> = (0..1000).map(|_| proxy.client()).collect();
    within(Duration::from_secs(60), "all are connected", || {
        (proxy.metric("connections") >= 1000.0).then_some(())
    });
    for (at, client) in clients.iter_mut().enumerate() {
        let resource = format!("resource/{at}");
        client.send(&put(&format!("/many/{at}"), &resource, 7, &resource)).expect("sent");
    }
    for (at, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.finish().status, 201, "{at}");
    }
    for at in [0, 499, 999] {
        assert_eq!(
            nginx.stored(&format!("many/{at}")),
            Some(format!("resource/{at}").into_bytes())
        );
    }
    println!(
        "1,000 connections, 1,000 resources: {} tokens recorded in {} commits",
        proxy.metric("raises_total"),
        proxy.metric("commits_total")
    );
}

#[test]
fn clients_beyond_the_bound_wait_to_be_accepted() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).flag("--connections-max", "2").start();
    let mut inside = [(); 2].map(|()| proxy.client());
    for client in &mut inside {
        assert_eq!(client.get("/missing").status, 404);
    }
    let mut outside = proxy.client();
    outside.send(b"GET /missing HTTP/1.1\r\nHost: a\r\n\r\n").expect("the kernel takes it");
    assert_eq!(inside[0].get("/missing").status, 404);
    assert!(!outside.has_answer());
    assert_eq!(proxy.metric("connections"), 2.0);
    drop(inside);
    assert_eq!(outside.finish().status, 404);
}

#[test]
fn the_way_through_costs_little() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).start();
    let rounds = 300;
    // In turns, so that both see the same machine.
    let (mut alone, mut through) = (Vec::new(), Vec::new());
    let (mut direct, mut fenced) = (Client::new(nginx.addr()), proxy.client());
    for _ in 0..rounds {
        alone.push(time(&mut direct));
        through.push(time(&mut fenced));
    }
    let (alone, through) = (median(alone), median(through));
    println!(
        "a PUT of 1 KiB, median of {rounds}: {alone:?} to nginx alone, {through:?} through the proxy: {:.2} times",
        through.as_secs_f64() / alone.as_secs_f64()
    );
}

fn time(client: &mut Client) -> Duration {
    let request = put("/timed", "r", 1, &"x".repeat(1024));
    let began = Instant::now();
    client.send(&request).expect("sent");
    let answer = client.finish();
    assert!(answer.status < 300, "{answer}");
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The most memory that a process ever had.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is told");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
