//! The page, given out on this machine alone, whose products are run anew as they are asked for.
//!
//! Only programs on this machine can connect. Pages of other sites, which a browser on this machine may show, are kept out by what
//! browsers say of themselves: a request must name this server as its host (so that a foreign name that leads here is refused: DNS
//! rebinding), and one that comes from another origin is refused.

use std::io::Cursor;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use tegula::element::Type;
use tegula::kernels::{Mapping, Plain};
use tiny_http::{Header, Method, Request, Response, Server};

use crate::error::{Error, Result};
use crate::page::{self, Book, Choice};

/// The greatest m, n and k.
pub const LARGEST: usize = 64;

/// Products that are run at a time; others wait for their turn.
const AT_A_TIME: usize = 4;

/// A page that is given out.
pub struct Page {
    server: Server,
    at: SocketAddr,
    html: String,
}

/// What is answered: a status, a type and a text.
type Answer = (u16, &'static str, String);

impl Page {
    /// Makes the page, which opens with a product, and takes a port of the loopback interface; 0 for any that is free.
    ///
    /// # Errors
    /// Where the port is taken, or the product cannot be traced.
    pub fn open(port: u16, start: Choice) -> Result<Page> {
        let server =
            Server::http((Ipv4Addr::LOCALHOST, port)).map_err(|why| Error::Serve { port, why: why.to_string() })?;
        let at = server.server_addr().to_ip().ok_or_else(|| Error::Serve { port, why: "it has no address".into() })?;
        Ok(Page { server, at, html: page::html(&Book::served(vec![start]), &|_| {})? })
    }

    /// Where it can be seen.
    pub fn url(&self) -> String {
        format!("http://{}/", self.at)
    }

    /// Answers requests, for ever.
    pub fn run(&self) {
        thread::scope(|scope| {
            for _ in 0..AT_A_TIME {
                scope.spawn(|| {
                    while let Ok(request) = self.server.recv() {
                        self.respond(request);
                    }
                });
            }
        });
    }

    fn respond(&self, request: Request) {
        let (status, kind, text) = self.answer(&request);
        let headers = [
            ("Content-Type", kind),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ];
        let headers = headers.iter().filter_map(|(name, value)| Header::from_bytes(*name, *value).ok());
        let length = text.len();
        let answer =
            Response::new(status.into(), headers.collect(), Cursor::new(text.into_bytes()), Some(length), None);
        // Whoever has left by now misses nothing.
        _ = request.respond(answer);
    }

    fn answer(&self, request: &Request) -> Answer {
        let refuse = |status, why: &str| (status, "text/plain; charset=utf-8", why.to_string());
        if !self.is_ours(request) {
            return refuse(403, "this page answers nobody but itself");
        }
        if *request.method() != Method::Get {
            return refuse(405, "this page is only read");
        }
        let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
        match path {
            "/" => (200, "text/html; charset=utf-8", self.html.clone()),
            "/product" => match choice(query).and_then(|choice| choice.packed().map_err(|why| why.to_string())) {
                Ok(packed) => (200, "text/plain; charset=utf-8", packed),
                Err(why) => refuse(400, &why),
            },
            _ => refuse(404, "there is nothing here"),
        }
    }

    /// Whether a request was meant for this server, and comes from its page, from the address bar, or from no browser.
    fn is_ours(&self, request: &Request) -> bool {
        let named = |name: &str| -> Vec<String> {
            let headers =
                request.headers().iter().filter(|header| header.field.as_str().as_str().eq_ignore_ascii_case(name));
            headers.map(|header| header.value.to_string().to_ascii_lowercase()).collect()
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
            "dtype" => plain.ty = dtype(value).ok_or_else(unknown)?,
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

fn dtype(name: &str) -> Option<Type> {
    [Type::F32, Type::F64, Type::I32, Type::F16, Type::BF16, Type::I8].into_iter().find(|ty| ty.name() == name)
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
