//! A window with the page in it, steered by the protocol of the browser's developer tools
//! (<https://chromedevtools.github.io/devtools-protocol/>): JSON over a web socket.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tegula_core::element::Type;
use tegula_explain::page::{Book, html};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

/// Programs that are the browser.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A window.
pub struct Window {
    socket: RefCell<WebSocket<TcpStream>>,
    session: String,
    calls: Cell<u64>,
    /// What the page said on its console.
    said: RefCell<Vec<String>>,
    browser: Child,
    _profile: TempDir,
}

/// A window that shows an address, where there is a browser.
pub fn open(url: &str) -> Option<Window> {
    let required = std::env::var_os("TEGULA_REQUIRE_BROWSER").is_some_and(|value| value == "1");
    let Some(program) = program() else {
        assert!(!required, "no Chromium is installed, and TEGULA_REQUIRE_BROWSER=1");
        eprintln!("skipped: no Chromium is installed");
        return None;
    };
    let profile = tempfile::tempdir().unwrap();
    let mut browser = Command::new(program)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
        .args(["--no-first-run", "--window-size=1400,1100", "--remote-debugging-port=0"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg("about:blank")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(browser.stderr.take().unwrap()).lines();
    let address = lines
        .find_map(|line| Some(line.ok()?.strip_prefix("DevTools listening on ")?.to_string()))
        .expect("the browser says where its tools listen");
    thread::spawn(move || lines.for_each(drop));
    let host = address.trim_start_matches("ws://").split('/').next().unwrap();
    let stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let (socket, _) = tungstenite::client(address.as_str(), stream).unwrap();
    let mut window = Window {
        socket: RefCell::new(socket),
        session: String::new(),
        calls: Cell::new(0),
        said: RefCell::default(),
        browser,
        _profile: profile,
    };
    let target = window.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
    let attached = window.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
    window.session = attached["sessionId"].as_str().unwrap().into();
    for enable in ["Page.enable", "Runtime.enable", "Log.enable"] {
        window.call(enable, json!({}));
    }
    window.size(1400, 1100);
    window.call("Page.navigate", json!({ "url": url }));
    window.until("!!document.body?.dataset.ready");
    Some(window)
}

/// A window that shows the page that is a file.
pub fn page(state: &str) -> Option<Window> {
    static FILE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, file) = FILE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page.html");
        std::fs::write(&file, html(&Book::small(Type::F32), &|_| {}).unwrap()).unwrap();
        (folder, file)
    });
    open(&format!("file://{}#{state}", file.display()))
}

fn program() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).flat_map(|folder| NAMES.map(|name| folder.join(name))).find(|path| path.is_file())
}

impl Drop for Window {
    fn drop(&mut self) {
        _ = self.browser.kill();
        _ = self.browser.wait();
    }
}

impl Window {
    fn call(&self, method: &str, params: Value) -> Value {
        let id = self.calls.get() + 1;
        self.calls.set(id);
        let mut call = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            call["sessionId"] = json!(self.session);
        }
        let mut socket = self.socket.borrow_mut();
        socket.send(Message::text(call.to_string())).unwrap();
        loop {
            let Ok(Message::Text(text)) = socket.read() else { panic!("the browser is gone: {method}") };
            let mut answer: Value = serde_json::from_str(text.as_str()).unwrap();
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.hear(&answer);
        }
    }

    fn hear(&self, event: &Value) {
        let params = &event["params"];
        let said = match event["method"].as_str() {
            Some("Log.entryAdded") => &params["entry"]["text"],
            Some("Runtime.exceptionThrown") => &params["exceptionDetails"],
            Some("Runtime.consoleAPICalled") => &params["args"],
            _ => return,
        };
        self.said.borrow_mut().push(said.to_string());
    }

    /// What an expression in the page comes to, as text.
    pub fn ask(&self, expression: &str) -> String {
        let expression = format!("Promise.resolve({expression}).then(String)");
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", params);
        answer["result"]["value"].as_str().map(String::from).unwrap_or_else(|| panic!("{expression}: {answer}"))
    }

    /// The text of an element.
    pub fn text(&self, selector: &str) -> String {
        self.ask(&format!("document.querySelector({selector:?}).innerText"))
    }

    /// Presses a key and lets it go.
    pub fn press(&self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "End" => 35,
            "Home" => 36,
            "ArrowLeft" => 37,
            "ArrowRight" => 39,
            _ => 0,
        };
        let text = if code == 0 { key } else { "" };
        let event = |kind: &str| json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code, "text": text });
        self.call("Input.dispatchKeyEvent", event(if code == 0 { "keyDown" } else { "rawKeyDown" }));
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }));
    }

    /// Clicks at an element.
    pub fn click(&self, selector: &str) {
        let click = "dispatchEvent(new MouseEvent('click', { bubbles: true }))";
        self.ask(&format!("document.querySelector({selector:?}).{click}"));
    }

    /// Chooses from a list, or enters a number.
    pub fn enter(&self, selector: &str, value: &str) {
        let change = format!("e.value = {value:?}; e.dispatchEvent(new Event('change', {{ bubbles: true }}));");
        self.ask(&format!("(e => {{ {change} }})(document.querySelector({selector:?}))"));
        self.until("!document.body.hasAttribute('aria-busy')");
    }

    /// Waits until an expression is true.
    pub fn until(&self, expression: &str) {
        for _ in 0..1200 {
            if self.ask(expression) == "true" {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("never: {expression}; {}", self.ask("document.body?.innerText.slice(0, 400)"));
    }

    /// The size of what is seen, in CSS pixels.
    pub fn size(&self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        thread::sleep(Duration::from_millis(300));
    }

    /// `light` or `dark`; nothing moves.
    pub fn scheme(&self, scheme: &str) {
        let feature = |name: &str, value: &str| json!({ "name": name, "value": value });
        let features = [feature("prefers-color-scheme", scheme), feature("prefers-reduced-motion", "reduce")];
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Keeps a picture where TEGULA_SCREENSHOTS says.
    pub fn picture(&self, name: &str) {
        if let Some(folder) = std::env::var_os("TEGULA_SCREENSHOTS") {
            let shot = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
            let png = BASE64_STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
            std::fs::write(PathBuf::from(folder).join(format!("{name}.png")), png).unwrap();
        }
    }

    /// The page said nothing on its console, and asked nobody else for anything.
    pub fn was_quiet(&self) {
        assert_eq!(*self.said.borrow(), Vec::<String>::new());
        let asked =
            "performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin))";
        assert_eq!(self.ask(asked), "");
    }
}
