//! The page, given out on this machine alone, whose products are run anew as they are asked for.
//!
//! Only programs on this machine can connect. Pages of other sites, which a browser on this machine may show, are kept out by what
//! browsers say of themselves: a request must name this server as its host (so that a foreign name that leads here is refused: DNS
//! rebinding), and one that comes from another origin is refused.
//!
//! Only products take time. They wait in a queue of bounded length, `AT_A_TIME` of them run, and all else is answered at once.
//! When a client closes its connection, or its half of it, a product that waits leaves the queue, and one that runs is stopped: the
//! two cannot be told apart before an answer is sent.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use std::{future, io, net};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tegula_core::element::Type;
use tegula_kernels::{Mapping, Plain};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{self, Runtime};
use tokio::sync::Semaphore;
use tokio::{task, time};

use crate::error::{Error, Result};
pub use crate::page::LARGEST;
use crate::page::{self, Book, Choice};

/// Products that are run at a time.
const AT_A_TIME: usize = 4;

/// Products that are run or wait; more are refused.
const QUEUE: usize = 128;

/// How long a connection may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(20);

/// A page that is given out.
pub struct Page {
    listener: TcpListener,
    runtime: Runtime,
    site: Arc<Site>,
}

/// What is given out, and where.
struct Site {
    at: SocketAddr,
    html: Bytes,
    /// Places in the queue, and among those that run.
    queue: Semaphore,
    running: Arc<Semaphore>,
}

/// What is answered: a status, a type and a text.
type Answer = (StatusCode, &'static str, Bytes);

const PLAIN: &str = "text/plain; charset=utf-8";

/// What a request comes to.
enum Asked {
    Answer(Answer),
    Product(Choice),
}

impl Page {
    /// Makes the page, which opens with a product, and takes a port of the loopback interface; 0 for any that is free.
    ///
    /// # Errors
    /// Where the port is taken, or the product cannot be traced.
    pub fn open(port: u16, start: Choice) -> Result<Page> {
        let failed = |why: io::Error| Error::Serve { port, why: why.to_string() };
        let listener = net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        let mut runtime = runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).max_blocking_threads(AT_A_TIME).enable_all().build().map_err(failed)?;
        let listener = {
            let _within = runtime.enter();
            TcpListener::from_std(listener).map_err(failed)?
        };
        let html = page::html(&Book::served(vec![start]), &|_| {})?;
        let (queue, running) = (Semaphore::new(QUEUE), Arc::new(Semaphore::new(AT_A_TIME)));
        Ok(Page { listener, runtime, site: Arc::new(Site { at, html: html.into(), queue, running }) })
    }

    /// Where it can be seen.
    pub fn url(&self) -> String {
        format!("http://{}/", self.site.at)
    }

    /// Answers requests, for ever.
    pub fn run(&self) {
        self.runtime.block_on(async {
            loop {
                let Ok((stream, _)) = self.listener.accept().await else {
                    // As many files are open as may be: some will be closed.
                    time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let Ok((stream, client)) = twice(stream) else { continue };
                let (site, client) = (Arc::clone(&self.site), Arc::new(client));
                let service = service_fn(move |request| respond(Arc::clone(&site), Arc::clone(&client), request));
                let mut http = http1::Builder::new();
                // Programs may say that they have said all, and still listen.
                http.half_close(true);
                http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(1 << 14);
                let connection = http.serve_connection(TokioIo::new(stream), service);
                // Whoever has left by now misses nothing.
                task::spawn(async { _ = connection.await });
            }
        });
    }
}

/// A connection for hyper, and one to see whether the client is still there.
fn twice(stream: TcpStream) -> io::Result<(TcpStream, TcpStream)> {
    let stream = stream.into_std()?;
    let other = stream.try_clone()?;
    Ok((TcpStream::from_std(stream)?, TcpStream::from_std(other)?))
}

/// Ends when a client has closed its connection, or its half of it.
async fn gone(client: &TcpStream) {
    if let Ok(1..) = client.peek(&mut [0]).await {
        // It has asked for more, and stays for the answers.
        future::pending::<()>().await;
    }
}

async fn respond(
    site: Arc<Site>,
    client: Arc<TcpStream>,
    request: Request<Incoming>,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let (status, kind, text) = match site.asked(&request) {
        Asked::Answer(answer) => answer,
        Asked::Product(choice) => {
            let (mut product, mut gone) = (pin!(site.product(choice)), pin!(gone(&client)));
            let left = || refuse(StatusCode::REQUEST_TIMEOUT, "the connection was closed before the product was made");
            let either = future::poll_fn(|context| match product.as_mut().poll(context) {
                Poll::Pending => gone.as_mut().poll(context).map(|()| left()),
                made => made,
            });
            either.await
        }
    };
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    Ok(response)
}

fn refuse(status: StatusCode, why: &str) -> Answer {
    (status, PLAIN, Bytes::from(why.to_string()))
}

/// Set when what waits for a product is dropped.
#[derive(Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Site {
    /// What a request asks for. Takes no time.
    fn asked(&self, request: &Request<Incoming>) -> Asked {
        Asked::Answer(if !self.is_ours(request) {
            refuse(StatusCode::FORBIDDEN, "this page answers nobody but itself")
        } else if *request.method() != Method::GET {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "this page is only read")
        } else {
            match request.uri().path() {
                "/" => (StatusCode::OK, "text/html; charset=utf-8", self.html.clone()),
                "/product" => match choice(request.uri().query().unwrap_or_default()) {
                    Ok(choice) => return Asked::Product(choice),
                    Err(why) => refuse(StatusCode::BAD_REQUEST, &why),
                },
                _ => refuse(StatusCode::NOT_FOUND, "there is nothing here"),
            }
        })
    }

    /// A product, when its turn comes.
    async fn product(&self, choice: Choice) -> Answer {
        let unavailable =
            || refuse(StatusCode::SERVICE_UNAVAILABLE, "too many products are asked for; ask again later");
        let Ok(_place) = self.queue.try_acquire() else { return unavailable() };
        let Ok(turn) = Arc::clone(&self.running).acquire_owned().await else { return unavailable() };
        let stop = Stop::default();
        let stopped = Arc::clone(&stop.0);
        let made = task::spawn_blocking(move || {
            // Held until the work has ended, whether or not its client is still there.
            let _turn = turn;
            choice.packed(&stopped)
        });
        match made.await {
            Ok(Ok(packed)) => (StatusCode::OK, PLAIN, packed.into()),
            Ok(Err(why)) => refuse(StatusCode::BAD_REQUEST, &why.to_string()),
            Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "this product cannot be made"),
        }
    }

    /// Whether a request was meant for this server, and comes from its page, from the address bar, or from no browser.
    fn is_ours(&self, request: &Request<Incoming>) -> bool {
        let named = |name: &str| -> Vec<String> {
            let values = request.headers().get_all(name);
            values.iter().map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase()).collect()
        };
        let port = self.at.port();
        // Browsers leave out the port that is usual.
        let is_here = |host: &str| {
            ["127.0.0.1", "localhost"]
                .iter()
                .any(|name| host == format!("{name}:{port}") || port == 80 && host == *name)
        };
        let from_here = |origin: &String| origin.strip_prefix("http://").is_some_and(is_here);
        let hosts = named("host");
        hosts.len() == 1
            && is_here(&hosts[0])
            && named("origin").iter().all(from_here)
            && named("sec-fetch-site").iter().all(|site| site == "same-origin" || site == "none")
    }
}

/// The product that a request asks for, or why it cannot be had.
fn choice(query: &str) -> std::result::Result<Choice, String> {
    let mut plain = Plain::named("tiled").map_err(|why| why.to_string())?;
    let (mut sizes, mut mistake) = ([4; 3], None);
    let mut given = Vec::new();
    for (key, value) in
        query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    {
        if given.contains(&key) {
            return Err(format!("{} is given twice", shown(key)));
        }
        given.push(key);
        let unknown = || format!("there is no {} {}", shown(key), shown(value));
        match key {
            "kernel" => match value {
                "naive" | "tiled" => plain.family = Plain::named(value).map_err(|why| why.to_string())?.family,
                _ => return Err(unknown()),
            },
            "tile" => plain.tile = number(key, value, 32)? as u32,
            "mapping" => plain.mapping = value.parse::<Mapping>().map_err(|_| unknown())?,
            "dtype" => plain.ty = Type::operand_named(value).ok_or_else(unknown)?,
            "mistake" => mistake = (!value.is_empty()).then_some(value),
            "m" => sizes[0] = number(key, value, LARGEST)?,
            "n" => sizes[1] = number(key, value, LARGEST)?,
            "k" => sizes[2] = number(key, value, LARGEST)?,
            _ => return Err(format!("nothing is known of {}", shown(key))),
        }
    }
    let plain = match mistake {
        Some(mistake) => plain.planted(mistake).map_err(|why| why.to_string())?,
        None => plain,
    };
    Ok(Choice { plain, sizes })
}

fn number(key: &str, value: &str, largest: usize) -> std::result::Result<usize, String> {
    let number = value.parse().ok().filter(|number| (1..=largest).contains(number));
    number.ok_or_else(|| format!("{key} is {}; it may be 1 to {largest}", shown(value)))
}

/// A word from outside, short and harmless.
fn shown(word: &str) -> String {
    let word: String = word.chars().filter(|c| c.is_ascii_graphic()).take(24).collect();
    format!("{word:?}")
}
