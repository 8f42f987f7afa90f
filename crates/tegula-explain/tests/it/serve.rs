//! The server, spoken to as by browsers, by pages of other sites, and by programs that know no HTTP.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use tegula_core::element::Type;
use tegula_explain::page::Choice;
use tegula_explain::serve::Page;
use tegula_kernels::{Family, Plain};

use crate::full;

fn address() -> SocketAddr {
    static AT: OnceLock<SocketAddr> = OnceLock::new();
    *AT.get_or_init(own_page)
}

/// What comes back when these bytes are sent, and nothing after them: status, and all of the text.
fn sent(bytes: &[u8]) -> (u16, String) {
    let stream = connected();
    // What is no request may have been refused by now.
    _ = (&stream).write_all(bytes);
    _ = stream.shutdown(Shutdown::Write);
    answer(stream)
}

fn connected() -> TcpStream {
    let stream = TcpStream::connect(address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), answer)
}

fn get(path: &str, headers: &str) -> (u16, String) {
    let mut stream = connected();
    write!(stream, "GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").unwrap();
    answer(stream)
}

fn host() -> String {
    format!("Host: {}\r\n", address())
}

#[test]
fn only_this_machine_can_connect() {
    assert!(address().ip().is_loopback());
}

#[test]
fn the_page_and_products_are_given_out() {
    let (status, page) = get("/", &host());
    assert!(status == 200 && page.contains("<!doctype html>") && page.contains("x-frame-options: DENY"));
    let asked = "/product?kernel=tiled&tile=4&mapping=x-row&dtype=i32&mistake=no-guards&m=5&n=6&k=7";
    let (status, product) = get(asked, &host());
    assert!(status == 200 && product.len() > 2000, "{product}");
    assert_eq!(get("/product", &format!("{}Origin: http://{}\r\n", host(), address())).0, 200);
    assert_eq!(get("/product", &format!("Host: localhost:{}\r\n", address().port())).0, 200);
    assert_eq!(get("/nowhere", &host()).0, 404);
}

#[test]
fn others_are_refused() {
    let foreign = [
        "Host: example.org\r\n".to_string(),
        format!("Host: example.org:{}\r\n", address().port()),
        "Host: 127.0.0.1\r\n".to_string(),
        format!("Host: 127.0.0.1.example.org:{}\r\n", address().port()),
        format!("{}{}", host(), host()),
        String::new(),
        format!("{}Origin: http://example.org\r\n", host()),
        format!("{}Origin: null\r\n", host()),
        format!("{}Origin: https://{}\r\n", host(), address()),
        format!("{}Sec-Fetch-Site: cross-site\r\n", host()),
        format!("{}Sec-Fetch-Site: same-site\r\n", host()),
    ];
    for headers in foreign {
        for path in ["/", "/product"] {
            assert_eq!(get(path, &headers).0, 403, "{path} {headers}");
        }
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"] {
        assert_eq!(
            sent(format!("{method} / HTTP/1.1\r\n{}Content-Length: 0\r\nConnection: close\r\n\r\n", host()).as_bytes())
                .0,
            405,
            "{method}"
        );
    }
}

#[test]
fn every_parameter_has_its_bounds() {
    let refused = [
        "m=0",
        "m=65",
        "n=99999999999999999999",
        "k=-1",
        "k=1e3",
        "m=",
        "tile=0",
        "tile=33",
        "tile=%32",
        "dtype=f128",
        "dtype=pred",
        "mapping=y",
        "kernel=register",
        "mistake=none",
        "mistake=missing-first-barrier&kernel=naive",
        "m=4&m=4",
        "seed=1",
        "=",
        "m=<script>alert(1)</script>",
    ];
    for query in refused {
        let (status, answer) = get(&format!("/product?{query}"), &host());
        assert_eq!(status, 400, "{query}");
        assert!(!answer.contains("<script>") || answer.contains("text/plain"), "{answer}");
    }
    // All within the bounds fits into a trace.
    let largest = ["tile=32", "kernel=naive&tile=2", "tile=2"];
    for largest in &largest[..if full() { 3 } else { 1 }] {
        assert_eq!(get(&format!("/product?{largest}&m=64&n=64&k=64"), &host()).0, 200, "{largest}");
    }
}

#[test]
fn what_is_no_request_does_no_harm() {
    let long = [b"GET /".as_slice(), &[b'a'; 100_000], b" HTTP/1.1\r\n\r\n"].concat();
    let nonsense: [&[u8]; 9] = [
        b"",
        b"\r\n\r\n",
        b"\0\x01\x02\xff\xfe\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        &long,
    ];
    for bytes in nonsense {
        assert_ne!(sent(bytes).0, 200);
    }
    assert_eq!(get("/", &host()).0, 200);
}

#[test]
fn fifty_clients_are_served_at_once() {
    // Some say nothing at all, and hold their connection.
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address()).unwrap()).collect();
    let clients: Vec<_> = (0..50)
        .map(|i| thread::spawn(move || get(&format!("/product?tile=4&m={}&n=5&k=6", 1 + i % 8), &host()).0))
        .collect();
    assert!(clients.into_iter().all(|client| client.join().unwrap() == 200));
    drop(silent);
}

/// The product that takes longest.
const LONGEST: &str = "/product?kernel=naive&tile=2&dtype=f64&m=64&n=64&k=64";

#[test]
fn serve_dropped_products_leave_the_page_answering_at_once() {
    let address = own_page();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {LONGEST} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    }
    let start = Instant::now();
    assert_eq!(get_from(address, "/"), 200);
    let page = start.elapsed();
    assert_eq!(get_from(address, "/product?tile=2&m=4&n=4&k=4"), 200);
    let product = start.elapsed();
    println!("the page after {page:?}, a product after {product:?}");
    assert!(page < Duration::from_secs(2), "{page:?}");
    // Those that were running are waited for, those that had not begun are not.
    assert!(product < Duration::from_secs(30), "{product:?}");
}

#[test]
fn serve_more_products_than_the_queue_holds_are_refused_and_the_page_is_not() {
    let address = own_page();
    let mut waiting: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    for stream in &mut waiting {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "GET {LONGEST} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    }
    let start = Instant::now();
    assert_eq!(get_from(address, "/"), 200);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    // The last are refused while the first are still at work.
    let last = waiting.pop().unwrap();
    assert_eq!(answer(last).0, 503);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// A page that no other test asks for anything.
fn own_page() -> SocketAddr {
    let page = Page::open(0, Choice { plain: Plain::new(Family::Tiled, Type::F32, 2), sizes: [4; 3] }).unwrap();
    let at = page.url().trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    thread::spawn(move || page.run());
    at
}

fn get_from(address: SocketAddr, path: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    answer(stream).0
}
