# SPDX-License-Identifier: Apache-2.0
"""
The page in a real browser: Chromium, headless, driven through chromedriver by the WebDriver protocol. Called by page.sh.

    page.py HOST:PORT DIRECTORY SECONDS

Fills the cache over HTTP, then looks at the page as people do: with a mouse, with keys alone, on a phone, in the dark. Prints
'ok ...' or 'not ok ...' a line, and leaves screenshots in DIRECTORY. SECONDS: how long requests go on before the first one.
"""
import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

SERVER, SHOTS = sys.argv[1], sys.argv[2]
SECONDS = float(sys.argv[3])
URL = f"http://{SERVER}"
EVIL_FILE = "<img src=x onerror=alert(1)>"
EVIL_INSTANCE = "<script>alert(3)</script>"
TOKEN = "of-somebody-with-an-odd-name"
failed = 0


def tell(name, good, more=""):
    global failed
    failed += not good
    print(("ok " if good else "not ok ") + name + ("" if good else f": {more}"), flush=True)


def same(name, wanted, got):
    tell(name, wanted == got, f"wanted {wanted!r}, got {got!r}")


# ---- messages of the API, as far as they are needed


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def digest(data):
    return field(1, sha256(data)) + (field(2, len(data)) if data else b"")


def request(method, path, data=None, headers={}):
    asked = urllib.request.Request(URL + path, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, dict(refused.headers), refused.read()


def put(data, instance="main"):
    code, _, text = request("PUT", f"/{urllib.parse.quote(instance)}/cas/{sha256(data)}", data)
    assert code == 200, (code, text)
    return data


def fill():
    """What the page looks at later."""
    texts = {name: put(f"contents of {name}\n".encode() * 40) for name in ("main.o", "util.o", EVIL_FILE, "notes.txt")}
    sub = field(1, field(1, EVIL_FILE) + field(2, digest(texts[EVIL_FILE]))) + \
        field(1, field(1, "notes.txt") + field(2, digest(texts["notes.txt"])))
    root = b"".join(field(1, field(1, n) + field(2, digest(texts[n])) + field(4, 1)) for n in ("main.o", "util.o"))
    root += field(1, field(1, "gone.o") + field(2, digest(b"this was never stored")))
    root += field(2, field(1, "deep") + field(2, digest(sub)))
    root += field(3, field(1, "latest") + field(2, "deep/" + EVIL_FILE))
    put(root), put(sub)
    tree = put(field(1, root) + field(2, sub))
    wide = put(b"".join(field(1, field(1, f"file-{i:05d}") + field(2, digest(texts["main.o"]))) for i in range(450)))
    command = put(b"".join(field(1, a) for a in ("/usr/bin/gcc", "-O2", "-c", "main.c", "-o", "out/main.o", "-DNAME=\"<b>\"")) +
                  field(2, field(1, "PATH") + field(2, "/usr/bin:/bin")) + field(7, "out/main.o") + field(6, "work"))
    action = put(field(1, digest(command)) + field(2, digest(root)) + field(6, field(1, 60)))
    stdout = put(b"main.c: 3 warnings\n")
    result = field(2, field(1, "out/main.o") + field(2, digest(texts["main.o"])) + field(4, 1)) + \
        field(3, field(1, "out/tree") + field(3, digest(tree))) + field(4, 3) + field(6, digest(stdout)) + \
        field(9, field(1, "builder-7") + field(7, field(1, 1790000000)) + field(8, field(1, 1790000004)))
    code, _, text = request("PUT", f"/main/ac/{sha256(action)}", result)
    assert code == 200, (code, text)
    put(b"of another instance", EVIL_INSTANCE)
    code, _, text = request("PUT", f"/main/ac/{sha256(texts['util.o'])}", field(2, field(1, "util.o") + field(2, digest(texts["util.o"]))))
    assert code == 200, (code, text)
    request("PUT", f"/closed/ac/{sha256(action)}", result, {"Authorization": "Bearer " + TOKEN})  # a warning in the log
    return {"tree": tree, "wide": wide, "command": command, "action": action, "stdout": stdout, "complete": texts["util.o"]}


def traffic(until):
    number = 0
    while time.time() < until:
        data = f"{number} {threading.get_ident()}".encode() * (20 + number % 7 * 400)
        put(data)
        for _ in range(number % 4):
            request("GET", f"/main/cas/{sha256(data)}")
        request("GET", f"/main/ac/{sha256(data) if number % 8 == 0 else sha256(blobs['complete'])}")
        number += 1
        time.sleep(0.01 + 0.02 * abs(time.time() % 14 - 7) / 7)


# ---- WebDriver

KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Shift": "\ue008"}


class Browser:
    def __init__(self, port):
        self.root = f"http://127.0.0.1:{port}"
        self.session = None
        for _ in range(200):
            try:
                if self.call("GET", "/status")["ready"]:
                    break
            except (urllib.error.URLError, ConnectionError):
                pass
            time.sleep(0.05)
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                            "--no-first-run", "--disable-background-networking", "--disable-component-update"]}
        made = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}})
        self.session = made["sessionId"]

    def call(self, method, path, body=None):
        if self.session is not None:
            path = f"/session/{self.session}{path}"
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.root + path, data=data, method=method, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.loads(answer.read())["value"]

    def go(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script, what, seconds=60):
        until = time.time() + seconds
        while time.time() < until:
            if self.run("return Boolean(" + script + ")"):
                return
            time.sleep(0.05)
        tell(what, False, f"not within {seconds} s: {script}; the page says: " + self.run("return document.body.innerText")[:1500])

    def cdp(self, command, parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def press(self, *keys, text=""):
        actions = []
        for key in [KEYS[k] for k in keys] + list(text):
            actions += [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def focused(self):
        return self.run("const e = document.activeElement; return e.id || e.className || e.tagName")

    def log(self, kind):
        return self.call("POST", "/se/log", {"type": kind})

    def size(self, width, height, scale=1, dark=False):
        self.cdp("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 500})
        self.cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def shot(self, name, top):
        self.run(f"scrollTo(0, 0); const top = {json.dumps(top)} && document.querySelector({json.dumps(top)}); if (top) scrollTo(0, top.getBoundingClientRect().top - 16)")
        png = base64.b64decode(self.cdp("Page.captureScreenshot", {"format": "png"})["data"])
        with open(os.path.join(SHOTS, name + ".png"), "wb") as file:
            file.write(png)


def look_up(browser, data, **more):
    browser.run("document.getElementById('summary').textContent = ''")
    given = {"digest": sha256(data), "instance": "main", **more}
    browser.go(f"{URL}/#/?" + urllib.parse.urlencode(given))
    browser.wait("document.getElementById('summary').textContent !== ''", "a look-up ends")
    return browser.run("return document.getElementById('result').innerText")


def click(browser, text):
    before = browser.run("return location.hash")
    browser.run("""const links = [...document.querySelectorAll('#result a')];
        document.getElementById('summary').textContent = '';
        links.find((a) => a.textContent === arguments[0]).click()""", text)
    browser.wait(f"location.hash !== {json.dumps(before)} && document.getElementById('summary').textContent !== ''", "a link is followed")
    return browser.run("return document.getElementById('result').innerText")


# ---- what it must do


def check_figures(browser):
    browser.go(URL + "/")
    browser.wait("document.querySelectorAll('.line')[0].getAttribute('d') !== ''", "charts are drawn")
    text = browser.run("return document.body.innerText")
    tell("the state is told", re.search(r"\bServing\b", text), text[:300])
    tell("and how full it is", re.search(r"\d [KMG]?i?B\s+of ", text.replace("\u202f", " ")), text[:400])
    tell("and the rates", "asked for in 5" in text or "asked for since the start" in text, text[:600])
    tell("and the peer that does not answer", "127.0.0.1:1" in text and "Other nodes" in text, text[-900:])
    tell("the name of an instance is text", EVIL_INSTANCE in text, text)
    tell("a line of the log is text", "access denied" in text and "alert(2)" in text, text[-900:])
    same("nothing of them has become an element", 0, browser.run(
        "return document.querySelectorAll('main script, main img, main b, main iframe').length"))


def check_look_ups(browser):
    text = look_up(browser, blobs["complete"])
    tell("a result without more is shown", "1 output" in text and "Download" in text, text)
    text = look_up(browser, blobs["action"])
    for word in ("Action result", "failed", "builder-7", "out/main.o", "out/tree/", "what it runs", "the folder it runs in"):
        tell(f"an action shows '{word}'", word in text, text)
    text = click(browser, "what it runs")
    tell("its command is shown", "/usr/bin/gcc" in text and '-DNAME="<b>"' in text and "PATH" in text, text)
    browser.call("POST", "/back", {})
    browser.wait("document.getElementById('result').innerText.includes('out/tree')", "Back goes back")
    text = click(browser, "out/tree/")
    tell("a tree is a folder", all(name in text for name in ("deep/", "main.o", "executable", "latest")), text)
    tell("what is not here is marked", re.search(r"gone\.o\s*not here", text), text)
    text = click(browser, "deep/")
    tell("a file named like markup is shown as text", EVIL_FILE in text, text)
    same("and is no element", 0, browser.run("return document.querySelectorAll('main img').length"))
    text = click(browser, "out/tree")
    tell("the way back up is there", "main.o" in text, text)
    text = look_up(browser, blobs["wide"])
    tell("a wide folder comes in pages", "1 to 200 of 450" in text and "file-00199" in text and "file-00200" not in text, text[:300])
    text = click(browser, "Next")
    tell("of which there is a next", "201 to 400 of 450" in text and "file-00200" in text, text[:300])
    text = look_up(browser, blobs["tree"], instance=EVIL_INSTANCE)
    tell("blobs are shared between instances", "main.o" in text, text)
    text = look_up(browser, b"never stored")
    tell("what is not here is said", "Neither a blob nor" in text, text)


def check_keys(browser):
    browser.go("about:blank")
    browser.go(URL + "/")
    browser.wait("document.querySelector('.state.good')", "the page is there")
    browser.press("Tab")
    same("the first Tab is the skip link", "skip", browser.focused())
    browser.press("Enter")
    browser.press("Tab")
    same("which leads to the digest", "digest", browser.focused())
    browser.press(text="blobs/" + sha256(blobs["tree"]) + "/123")
    browser.press("Tab")
    same("then the instance", "instance", browser.focused())
    browser.run("arguments[0].value = ''", browser.call("POST", "/element", {"using": "css selector", "value": "#instance"}))
    browser.press(text="main")
    browser.press("Enter")
    browser.wait("document.activeElement.className === 'hash'", "the result has the focus")
    browser.press("Tab", "Tab")
    same("then its links", "deep/", browser.run("return document.activeElement.textContent"))
    shown = browser.run("""const style = getComputedStyle(document.activeElement);
        return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2""")
    tell("the focus is seen", shown)
    browser.press("Enter")
    browser.wait("document.getElementById('result').innerText.includes('notes.txt') && document.activeElement.className === 'hash'", "a folder is opened by keys")
    browser.run("document.getElementById('digest').value = 'nonsense'; document.getElementById('digest').focus()")
    browser.press("Enter")
    browser.wait("document.getElementById('wrong').textContent.includes('64 hexadecimal')", "nonsense is told")


def contrast(browser):
    """The least of all texts against what they stand on."""
    return browser.run("""
        const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
        const light = (rgb) => { const [r, g, b] = rgb.slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b };
        let least = [99, ''];
        for (const e of document.querySelectorAll('main *, header *, footer *')) {
            if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || e.offsetParent === null) continue;
            let under = e;
            while (under && parse(getComputedStyle(under).backgroundColor)[3] === 0) under = under.parentElement;
            const a = light(parse(getComputedStyle(e).color)), b = light(parse(getComputedStyle(under || document.body).backgroundColor));
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < least[0]) least = [ratio, e.outerHTML.slice(0, 120)];
        }
        return least""")


def check_looks(browser):
    for name, width, height, scale, dark in (("light", 1200, 1000, 1, False), ("dark", 1200, 1000, 1, True), ("phone", 360, 780, 2, False)):
        browser.size(width, height, scale, dark)
        for data, what in ((None, "page"), (blobs["action"], "action"), (blobs["tree"], "tree")):
            if data is not None:
                look_up(browser, data, **({"as": "tree", "trail": json.dumps([["out/tree", ""]])} if what == "tree" else {}))
            else:
                browser.go("about:blank")
                browser.go(URL + "/")
                browser.wait("document.querySelector('.state.good')", "the page is there")
            over = browser.run("""const wide = document.documentElement.clientWidth;
                return [document.documentElement.scrollWidth - wide, [...document.querySelectorAll('body *')].filter((e) =>
                    e.getBoundingClientRect().right > wide + 1 && !e.closest('svg, .unseen, thead')).slice(0, 3).map((e) => e.outerHTML.slice(0, 100))]""")
            tell(f"{what}, {name}: nothing sticks out", over[0] <= 0 and not over[1], over)
            ratio, where = contrast(browser)
            tell(f"{what}, {name}: contrast is 4.5 or more", ratio >= 4.5, f"{ratio:.2f} of {where}")
        dark_paper = browser.run("return getComputedStyle(document.body).backgroundColor")
        tell(f"{name}: the paper is {'dark' if dark else 'light'}", (int(re.findall(r'\d+', dark_paper)[0]) < 80) == dark, dark_paper)
    small = browser.run("""return [...document.querySelectorAll('button, input')].filter((e) => e.offsetParent && e.getBoundingClientRect().height < 40)
        .map((e) => e.outerHTML)""")
    same("on a phone buttons and fields are large enough", [], small)


def take_shots(browser):
    for name, width, height, scale, dark, data in (
            ("page-light", 1200, 1130, 1, False, None), ("page-dark", 1200, 1130, 1, True, None), ("page-phone", 360, 780, 2, False, None),
            ("page-action", 1200, 1300, 1, False, blobs["action"]), ("page-tree-phone", 360, 780, 2, True, blobs["tree"])):
        browser.size(width, height, scale, dark)
        if data is None:
            browser.run("location.hash = '#/'")
            browser.wait("document.getElementById('result').hidden", "the look-up is closed")
        else:
            look_up(browser, data)
        browser.run("document.activeElement.blur()")
        time.sleep(0.2)
        browser.shot(name, "#look-up" if data is not None and width < 500 else "")


def check_quiet(browser):
    """What the browser has to say of it, and whom it has asked."""
    bad = [line["message"] for line in browser.log("browser") if line["level"] in ("SEVERE", "WARNING") and "404 (Not Found)" not in line["message"]]
    same("no error and no violation of the policy", [], bad)
    elsewhere = set()
    for line in browser.log("performance"):
        message = json.loads(line["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            if not url.startswith(URL + "/") and not url.startswith(("about:", "data:")):
                elsewhere.add(url)
    same("nobody else was asked for anything", set(), elsewhere)


def check_headers():
    for path in ("/", "/page/page.js", "/page/page.css", "/page/state.json", f"/page/lookup.json?digest={sha256(blobs['tree'])}",
                 f"/page/blob?digest={sha256(blobs['stdout'])}&name=" + urllib.parse.quote('../a"b<c>.html')):
        code, headers, body = request("GET", path)
        policy = headers.get("Content-Security-Policy", "")
        tell(f"{path[:24]} has a strict policy", code == 200 and policy.startswith("default-src 'none';") and "unsafe" not in policy and
             headers.get("X-Content-Type-Options") == "nosniff", (code, headers))
        if path.endswith((".json", ".html")) or "lookup" in path:
            same(f"{path[:24]} is not kept", "no-store", headers.get("Cache-Control"))
    same("a blob is to be saved", 'attachment; filename=".._a_b_c_.html"'.replace("..", "_.", 1), headers.get("Content-Disposition"))
    same("and is nothing that runs", "application/octet-stream", headers.get("Content-Type"))
    same("and is itself", blobs["stdout"], body)
    code, headers, _ = request("GET", "/page/page.js")
    same("a file that is known is not sent again", 304, request("GET", "/page/page.js", None, {"If-None-Match": headers["ETag"]})[0])
    for query, wanted in (("digest=abc", 400), (f"digest={'0' * 64}", 404), (f"digest={'0' * 64}&as=nonsense", 400),
                          (f"digest={'0' * 64}&offset=-1", 400), (f"digest={sha256(b'')}", 200),
                          (f"digest={sha256(blobs['action'])}&instance=blobs", 400)):
        same(f"lookup.json?{query[:20]}... is {wanted}", wanted, request("GET", "/page/lookup.json?" + query)[0])


blobs = fill()
check_headers()
until = time.time() + SECONDS + 8
loads = [threading.Thread(target=traffic, args=(until,), daemon=True) for _ in range(6)]
for load in loads:
    load.start()
port = int(os.environ["DRIVER_PORT"])
driver = subprocess.Popen(["chromedriver", f"--port={port}", "--silent"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
browser = None
try:
    browser = Browser(port)
    browser.size(1200, 1000)
    browser.cdp("Browser.setDownloadBehavior", {"behavior": "deny"})
    browser.go(URL + "/")
    time.sleep(SECONDS)
    take_shots(browser)
    check_figures(browser)
    check_look_ups(browser)
    check_keys(browser)
    check_looks(browser)
    check_quiet(browser)
finally:
    if browser is not None and browser.session is not None:
        browser.call("DELETE", "")
    driver.terminate()
    driver.wait()
sys.exit(failed > 0)
