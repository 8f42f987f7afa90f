//! Windows of a headless Chromium, driven by the DevTools protocol
//! (<https://chromedevtools.github.io/devtools-protocol/>): JSON over a WebSocket.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tegula_core::element::Type;
use tegula_explain::page::{Catalog, Selection, html};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

use crate::full;

/// Names of the browser's program.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// The running browser, which all open windows share.
struct Browser {
    process: Child,
    /// The address of the DevTools.
    address: String,
    _profile: TempDir,
}

impl Browser {
    /// The browser of the open windows, or a new one; `None` if none is installed.
    fn shared() -> Option<Arc<Browser>> {
        static SHARED: Mutex<Weak<Browser>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(browser) = shared.upgrade() {
            return Some(browser);
        }
        let browser = Arc::new(Browser::start()?);
        *shared = Arc::downgrade(&browser);
        Some(browser)
    }

    fn start() -> Option<Browser> {
        let required = std::env::var_os("TEGULA_REQUIRE_BROWSER").is_some_and(|value| value == "1");
        let Some(program) = program() else {
            assert!(!required, "no Chromium is installed, and TEGULA_REQUIRE_BROWSER=1");
            eprintln!("skipped: no Chromium is installed");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let mut process = Command::new(program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .args(["--no-first-run", "--window-size=1400,1100", "--remote-debugging-port=0"])
            // Windows of parallel tests cover each other; all of them have to draw at full speed.
            .args(["--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding"])
            .arg("--disable-background-timer-throttling")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = lines
            .find_map(|line| Some(line.ok()?.strip_prefix("DevTools listening on ")?.to_string()))
            .expect("the address of the DevTools");
        thread::spawn(move || lines.for_each(drop));
        Some(Browser { process, address, _profile: profile })
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// A browser window, with storage of its own.
pub struct Window {
    socket: RefCell<WebSocket<TcpStream>>,
    session: String,
    calls: Cell<u64>,
    /// Messages of the page's console.
    console: RefCell<Vec<String>>,
    _browser: Arc<Browser>,
}

/// Opens a URL; `None` without a browser.
pub fn open(url: &str) -> Option<Window> {
    let browser = Browser::shared()?;
    let host = browser.address.trim_start_matches("ws://").split('/').next().unwrap();
    let stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let (socket, _) = tungstenite::client(browser.address.as_str(), stream).unwrap();
    let mut window = Window {
        socket: RefCell::new(socket),
        session: String::new(),
        calls: Cell::new(0),
        console: RefCell::default(),
        _browser: browser.clone(),
    };
    // The context and its pages end with the connection.
    let context = window.call("Target.createBrowserContext", json!({ "disposeOnDetach": true }));
    let target = json!({ "url": "about:blank", "browserContextId": context["browserContextId"], "newWindow": true });
    let target = window.call("Target.createTarget", target)["targetId"].clone();
    let attached = window.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
    window.session = attached["sessionId"].as_str().unwrap().into();
    for enable in ["Page.enable", "Runtime.enable", "Log.enable"] {
        window.call(enable, json!({}));
    }
    window.set_viewport(1400, 1100);
    window.call("Page.navigate", json!({ "url": url }));
    window.until("!!document.body?.dataset.ready");
    Some(window)
}

/// Opens the page as a file, in a state given as a URL fragment. It has machine code only in the
/// full run.
pub fn page(state: &str) -> Option<Window> {
    static FILE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, file) = FILE.get_or_init(|| {
        let all = Catalog::small(Type::F32);
        write(&if full() { all } else { all.without_machine_code() })
    });
    open(&format!("file://{}#{state}", file.display()))
}

/// Opens a page of one launch, with machine code if the tools are installed.
pub fn page_of(selection: Selection, state: &str) -> Option<Window> {
    let (_folder, file) = write(&Catalog::served(vec![selection]));
    open(&format!("file://{}#{state}", file.display()))
}

fn write(catalog: &Catalog) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    std::fs::write(&file, html(catalog, &|_| {}).unwrap()).unwrap();
    (folder, file)
}

fn program() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).flat_map(|folder| NAMES.map(|name| folder.join(name))).find(|path| path.is_file())
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
            let Ok(Message::Text(text)) = socket.read() else { panic!("{method}: the browser closed the connection") };
            let mut answer: Value = serde_json::from_str(text.as_str()).unwrap();
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.log(&answer);
        }
    }

    fn log(&self, event: &Value) {
        let params = &event["params"];
        let message = match event["method"].as_str() {
            Some("Log.entryAdded") => &params["entry"]["text"],
            Some("Runtime.exceptionThrown") => &params["exceptionDetails"],
            Some("Runtime.consoleAPICalled") => &params["args"],
            _ => return,
        };
        self.console.borrow_mut().push(message.to_string());
    }

    /// Evaluates an expression in the page, as text.
    pub fn eval(&self, expression: &str) -> String {
        let expression = format!("Promise.resolve({expression}).then(String)");
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", params);
        answer["result"]["value"].as_str().map(String::from).unwrap_or_else(|| panic!("{expression}: {answer}"))
    }

    /// The text of an element.
    pub fn text(&self, selector: &str) -> String {
        self.eval(&format!("document.querySelector({selector:?}).innerText"))
    }

    /// Presses and releases a key.
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

    /// Clicks an element.
    pub fn click(&self, selector: &str) {
        let click = "dispatchEvent(new MouseEvent('click', { bubbles: true }))";
        self.eval(&format!("document.querySelector({selector:?}).{click}"));
    }

    /// Sets the value of a control.
    pub fn enter(&self, selector: &str, value: &str) {
        let change = format!("e.value = {value:?}; e.dispatchEvent(new Event('change', {{ bubbles: true }}));");
        self.eval(&format!("(e => {{ {change} }})(document.querySelector({selector:?}))"));
        self.until("!document.body.hasAttribute('aria-busy')");
    }

    /// Waits until an expression is true.
    pub fn until(&self, expression: &str) {
        for _ in 0..3000 {
            if self.eval(expression) == "true" {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("timeout: {expression}; {}", self.eval("document.body?.innerText.slice(0, 400)"));
    }

    /// Changes the viewport size, in CSS pixels, and waits for the page, which draws 100 ms later.
    pub fn size(&self, width: u32, height: u32) {
        self.set_viewport(width, height);
        thread::sleep(Duration::from_millis(300));
    }

    fn set_viewport(&self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Sets the color scheme, `light` or `dark`, and reduced motion.
    pub fn scheme(&self, scheme: &str) {
        let feature = |name: &str, value: &str| json!({ "name": name, "value": value });
        let features = [feature("prefers-color-scheme", scheme), feature("prefers-reduced-motion", "reduce")];
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Writes a screenshot into the folder `TEGULA_SCREENSHOTS`, if set.
    pub fn screenshot(&self, name: &str) {
        if let Some(folder) = std::env::var_os("TEGULA_SCREENSHOTS") {
            let shot = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
            let png = BASE64_STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(PathBuf::from(folder).join(format!("{name}.png")), png).unwrap();
        }
    }

    /// Asserts an empty console and no requests to other origins.
    pub fn assert_quiet(&self) {
        assert_eq!(*self.console.borrow(), Vec::<String>::new());
        let requests =
            "performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin))";
        assert_eq!(self.eval(requests), "");
    }
}
