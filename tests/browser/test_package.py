"""The npm package: its types, its tarball, and the options that the served module does not have."""

import json
import re
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest
from playwright.sync_api import Page

from embedsink.browser.modules import PACKAGES, package_files
from tests.browser.stage import Stage, embed_in, emit, on_durable, paths_of, waiting
from tests.support.browser_package import SOURCE
from tests.support.paths import ROOT
from tests.support.servers import wait_until

pytestmark = pytest.mark.server

HOST = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<iframe src="{embed}/embed?session=credential-1"></iframe>
<script type="module">
  import {{ forward }} from "{gate}/package.js";
  window.stages = []; window.problems = []; window.deliveries = [];
  window.consented = new URLSearchParams(location.search).has("consent");
  window.options = {{ endpoint: "{gate}/api/v1/events", origin: "{embed}", key: "{key}", context: {{ viewer: "u_42" }},
    onEvent: (envelope, stage) => stages.push([envelope.id, stage]), onError: (problem) => problems.push(problem),
    onDelivered: (envelopes) => deliveries.push(envelopes.map(({{ id }}) => id)) }};
  window.forward = forward;
  window.f = forward(Object.assign(options, {options}));
</script>"""
CONSENT = "{ consent: () => consented }"
STORED = "Object.keys({ ...localStorage, ...sessionStorage }).filter((name) => name.startsWith('embedsink'))"


def run(*command: str | Path, folder: Path) -> str:
    """Run a program. Return its output."""
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def compile_folder(package: Path, folder: Path) -> None:
    """Check the types of the files in a folder of the package."""
    options = {"rootDir": ".", "noEmit": True, "noUnusedLocals": False}
    settings = {"extends": "../tsconfig.json", "compilerOptions": options, "include": ["."]}
    (folder / "tsconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    run("npx", "tsc", "-p", folder, folder=package)


def bundle(package: Path, code: str) -> str:
    """Return a module and what it uses of the package, as a bundler of an application would."""
    compiler = package / "node_modules/.bin/esbuild"
    arguments = ["--bundle", "--format=esm", "--tree-shaking=true"]
    return subprocess.run(
        [compiler, *arguments], cwd=package, input=code, check=True, capture_output=True, text=True
    ).stdout


def open_page(
    stage: Stage, package: Path, options: str = "{}", *, path: str = "/package", page: Page | None = None
) -> Page:
    """Open a page of an application that bundles the package. `path` may have a query."""
    stage.gate.modules["/package.js"] = bundle(package, 'export * from "@embedsink/browser";')
    html = HOST.format(gate=stage.gate.url, embed=stage.tenant.url, key=stage.key, options=options)
    name, _, query = path.partition("?")
    page = page or stage.context().new_page()
    page.goto(f"{stage.host.add(name, html)}?{query}")
    page.wait_for_function("window.f")
    return page


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of each file in a folder, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_types_tell_the_payload_of_an_event_and_refuse_wrong_options(package: Path) -> None:
    folder = package / "types"
    folder.mkdir(exist_ok=True)
    shutil.copy(Path(__file__).with_name("package_types.ts"), folder)
    compile_folder(package, folder)


def test_the_documented_code_compiles(package: Path) -> None:
    folder = package / "documented"
    folder.mkdir(exist_ok=True)
    pages = [ROOT / "docs/browser.md", SOURCE / "README.md"]
    texts = [text for page in pages for text in re.findall(r"^```ts\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)]
    assert len(texts) >= 2
    for number, text in enumerate(texts):
        (folder / f"documented{number}.ts").write_text(text, encoding="utf-8")
    compile_folder(package, folder)


def test_the_tarball_has_only_modules_types_and_the_readme(package: Path, tmp_path: Path) -> None:
    run("npm", "pack", "--ignore-scripts", "--pack-destination", tmp_path, folder=package)
    [tarball] = tmp_path.iterdir()
    with tarfile.open(tarball) as archive:
        names = {name.removeprefix("package/") for name in archive.getnames()}
        archive.extractall(tmp_path, filter="data")
    with tarfile.open(PACKAGES / tarball.name) as archive:
        archive.extractall(tmp_path / "served", filter="data")
    assert contents(tmp_path / "served/package") == contents(tmp_path / "package"), "run scripts/build-browser"
    modules = {str(path.relative_to(SOURCE / "src").with_suffix("")) for path in (SOURCE / "src").rglob("*.ts")}
    built = {f"dist/{module}.{suffix}" for module in modules - {"element"} for suffix in ("js", "d.ts")}
    assert names == {"package.json", "README.md"} | built
    packed = json.loads((tmp_path / "package/package.json").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert packed["version"] == project["version"]
    # npm's word for no license (README.md).
    assert packed["license"] == project.get("license", "UNLICENSED")
    assert "dependencies" not in packed
    # A bundler would rewrite it, and an application would contain a path of the machine that built it.
    assert all("import.meta" not in path.read_text() for path in (tmp_path / "package/dist").rglob("*.js"))


@pytest.mark.parametrize("stage", ["chromium"], indirect=True)
def test_npm_installs_the_package_from_a_server_again_with_its_lock_file(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{ "name": "application" }')
    [name] = package_files()
    run("npm", "install", "--no-audit", f"{stage.server.url}/packages/{name}", folder=tmp_path)
    shutil.rmtree(tmp_path / "node_modules")
    run("npm", "ci", "--no-audit", "--cache", tmp_path / "cache", folder=tmp_path)
    code = 'import { embedUrl } from "@embedsink/browser"; console.log(typeof embedUrl)'
    assert run("node", "--input-type=module", "--eval", code, folder=tmp_path).strip() == "function"


def test_the_lock_file_names_no_registry() -> None:
    assert "://" not in (SOURCE / "package-lock.json").read_text(encoding="utf-8")


def test_a_bundle_contains_only_what_the_application_uses(package: Path) -> None:
    used = bundle(package, 'import { embedUrl } from "@embedsink/browser"; globalThis.url = embedUrl;')
    assert "/embed/dashboard/" in used
    assert "localStorage" not in used
    assert "localStorage" in bundle(package, 'import { forward } from "@embedsink/browser"; forward();')


def test_node_imports_the_package_and_builds_urls_without_a_dom(package: Path) -> None:
    code = """
        import { embedUrl, forward, send } from "@embedsink/browser";
        console.log(embedUrl({ base: "https://t.example.com", publicId: "d", session: "s" }));
        console.log(typeof forward, typeof send)
    """
    output = run("node", "--input-type=module", "--eval", code, folder=package)
    assert output.split() == ["https://t.example.com/embed/dashboard/d?session=s", "function", "function"]


def test_a_missing_endpoint_is_reported(stage: Stage, package: Path) -> None:
    page = open_page(stage, package, "{ endpoint: undefined }")
    assert page.evaluate("problems.map(({ name }) => name)") == ["TypeError"]
    embed_in(page).evaluate("view('/a')")
    on_durable(page)
    assert page.evaluate("stages") == []


def test_on_delivered_gets_the_events_of_each_confirmed_delivery(stage: Stage, package: Path) -> None:
    page = open_page(stage, package)
    ids = emit(page, 3)
    page.wait_for_function("f.flush(), deliveries.flat().length == 3")
    assert page.evaluate("deliveries.flat()") == ids
    page.evaluate("() => { options.onDelivered = () => { throw new Error('host'); }; }")
    emit(page, 1)
    stage.delivered(4, at_once=page)


def test_a_session_of_the_options_replaces_that_of_the_context(stage: Stage, package: Path) -> None:
    page = open_page(stage, package, "{ session: 's_own', context: () => ({ viewer: 'u_7', session: 's_other' }) }")
    emit(page, 1)
    [delivery] = stage.delivered(1, at_once=page)
    assert (delivery["context"]["session"], delivery["context"]["viewer"]) == ("s_own", "u_7")


def test_feedback_is_an_event_of_the_chat(stage: Stage, package: Path) -> None:
    page = open_page(stage, package)
    page.evaluate("f.feedback('chat_1', 'up'), f.feedback('chat_1', 'down', 'wrong year')")
    events = stage.gate.first_body()["events"]
    assert {(event["type"], event["surface"]) for event in events} == {("svc:event:x-feedback", "chat")}
    assert [event["payload"] for event in events] == [
        {"chatId": "chat_1", "rating": "up"},
        {"chatId": "chat_1", "rating": "down", "text": "wrong year"},
    ]


def test_feedback_belongs_to_the_session_of_the_question(stage: Stage, package: Path) -> None:
    page = open_page(stage, package)
    embed_in(page).evaluate("emit('ai-query', { query: 'why?', status: 'completed', chatId: 'chat_1' }, 'chat')")
    page.wait_for_function("stages.length > 0")
    page.evaluate("f.feedback('chat_1', 'up'), f.feedback('chat_2', 'up')")
    question, other = stage.delivered(3, at_once=page)
    assert [(event["type"], event["seq"]) for event in question["events"]] == [
        ("svc:event:ai-query", 0),
        ("svc:event:x-feedback", 1),
    ]
    assert other["context"]["session"] != question["context"]["session"]


def test_feedback_after_a_reload_belongs_to_the_session_of_the_iframe(stage: Stage, package: Path) -> None:
    page = open_page(stage, package, "{ iframe: document.querySelector('iframe') }")
    embed_in(page).evaluate("emit('ai-query', { query: 'why?', status: 'completed', chatId: 'chat_1' }, 'chat')")
    [question] = stage.delivered(1, at_once=page)
    page.reload()
    page.wait_for_function("window.f")
    page.evaluate("f.feedback('chat_1', 'up')")
    *_, feedback = stage.delivered(2)
    assert feedback["context"]["session"] == question["context"]["session"]
    assert feedback["events"][0]["seq"] == 1


def test_without_consent_nothing_is_forwarded_or_stored(stage: Stage, package: Path) -> None:
    page = open_page(stage, package, CONSENT)
    embed_in(page).evaluate("ready(12, 'acme'); view('/secret')")
    page.evaluate("f.track({ type: 'view', payload: { surface: 'app', path: '/secret' } })")
    on_durable(page, 1.2)
    assert page.evaluate("stages") == []
    assert page.evaluate(STORED) == []
    page.evaluate("() => { consented = true; }")
    embed_in(page).evaluate("view('/a')")
    [delivery] = stage.delivered(1, at_once=page)
    assert [(event["payload"]["path"], event["seq"]) for event in delivery["events"]] == [("/a", 0)]
    assert delivery["lost"] == {}


@pytest.mark.parametrize("value", ["false", "'true'", "null", "() => undefined", "() => { throw new Error('host'); }"])
def test_only_true_is_a_consent(stage: Stage, package: Path, value: str) -> None:
    page = open_page(stage, package, f"{{ consent: {value} }}")
    embed_in(page).evaluate("view('/a')")
    on_durable(page)
    assert page.evaluate("stages") == []


def test_a_withdrawn_consent_deletes_the_queue_and_sends_nothing_more(stage: Stage, package: Path) -> None:
    page = open_page(stage, package, CONSENT, path="/package?consent")
    stage.gate.is_closed = True
    emit(page, 3)
    page.wait_for_function("problems.length")
    assert waiting(page) == 3
    page.evaluate("() => { consented = false; }")
    stage.gate.is_closed = False
    page.evaluate("f.flush()")
    assert page.evaluate(STORED) == []
    embed_in(page).evaluate("view('/secret')")
    on_durable(page, 1.2)
    page.goto(stage.host.add("/elsewhere", "<!doctype html>elsewhere"))
    assert page.evaluate(STORED) == []
    assert stage.gate.answered == []


def test_a_page_without_consent_deletes_what_an_earlier_page_has_stored(stage: Stage, package: Path) -> None:
    page = open_page(stage, package, CONSENT, path="/package?consent")
    stage.gate.is_closed = True
    emit(page, 3)
    page.goto(stage.host.add("/elsewhere", "<!doctype html>elsewhere"))
    assert len(page.evaluate(STORED)) > 1
    stage.await_farewells()
    stage.gate.is_closed = False
    open_page(stage, package, CONSENT, page=page)
    assert page.evaluate(STORED) == []
    on_durable(page, 1.2)
    assert stage.gate.answered == []


@pytest.mark.parametrize("answer", ["undefined", "'unknown'", "(() => { throw new Error('host'); })()"])
def test_an_unknown_consent_keeps_the_queue_until_the_consent(stage: Stage, package: Path, answer: str) -> None:
    options = f"{{ consent: () => consented || {answer} }}"
    page = open_page(stage, package, options, path="/package?consent")
    stage.gate.is_closed = True
    emit(page, 3)
    page.wait_for_function("problems.length")
    page.goto(stage.host.add("/elsewhere", "<!doctype html>elsewhere"))
    stage.await_farewells()
    stage.gate.is_closed = False
    open_page(stage, package, options, page=page)
    embed_in(page).evaluate("view('/ignored')")
    on_durable(page, 1.2)
    assert waiting(page) == 3
    assert stage.gate.answered == []
    page.evaluate("() => { consented = true; dispatchEvent(new Event('online')); }")
    assert paths_of(stage.delivered(3)) == ["/0", "/1", "/2"]


def test_adapters_remember_nothing_from_before_the_consent(stage: Stage, package: Path) -> None:
    adapt = "(data) => { (window.adapted ??= []).push(data); return []; }"
    page = open_page(stage, package, f"{{ consent: () => consented, adapt: {adapt} }}")
    embed_in(page).evaluate("parent.postMessage('before', '*')")
    on_durable(page)
    page.evaluate("() => { consented = true; }")
    embed_in(page).evaluate("parent.postMessage('after', '*')")
    page.wait_for_function("window.adapted")
    assert page.evaluate("adapted") == ["after"]


def test_after_destroy_no_listener_remains(stage: Stage, package: Path) -> None:
    page = open_page(stage, package)
    emit(page, 1)
    page.evaluate("f.destroy()")
    embed_in(page).evaluate("view('/late')")
    page.evaluate("f.feedback('chat_1', 'up')")
    stage.delivered(1)
    wait_until(lambda: page.evaluate("deliveries.flat().length") == 1, description="the delivery is reported")
    assert page.evaluate("stages.filter(([, stage]) => stage == 'seen').length") == 1
