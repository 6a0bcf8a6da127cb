// The documentation page: reads the OpenAPI document of this server and offers a form for each call.
"use strict";

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function inputFor(parameter) {
  const { schema } = parameter;
  if (schema.enum) {
    const options = schema.enum.map((value) => element("option", { value, textContent: value }));
    return element("select", {}, element("option", { value: "", textContent: "any" }), ...options);
  }
  if (schema.type === "integer") {
    return element("input", { type: "number", min: schema.minimum, max: schema.maximum, placeholder: schema.default ?? "" });
  }
  const placeholder = schema.format === "date-time" ? "2026-03-01T12:00:00Z" : "";
  return element("input", { type: "text", placeholder, autocomplete: "off", spellcheck: false });
}

function fieldFor(parameter, operationId) {
  const input = inputFor(parameter);
  input.id = `${operationId}-${parameter.name}`;
  input.name = parameter.name;
  input.required = parameter.required;
  if (parameter.schema.format === "date-time" && parameter.required) {
    const ago = parameter.name === "start_time" ? 3600e3 : 0;
    input.value = new Date(Date.now() - ago).toISOString().replace(/\.\d+Z$/, "Z");
  }
  const label = element("label", { htmlFor: input.id, textContent: parameter.name });
  if (parameter.required) label.className = "required";
  return element("div", { className: "field" }, label, input, element("small", { textContent: parameter.description }));
}

function addressOf(path, parameters, form) {
  const query = new URLSearchParams();
  let filled = path;
  for (const parameter of parameters) {
    const value = form.elements[parameter.name].value;
    if (parameter.in === "path") filled = filled.replace(`{${parameter.name}}`, encodeURIComponent(value));
    else if (value !== "") query.set(parameter.name, value);
  }
  const text = query.toString();
  return text ? `${filled}?${text}` : filled;
}

function authorization() {
  const token = document.getElementById("token").value.trim();
  return token === "" ? {} : { authorization: `Bearer ${token}` };
}

async function send(method, address, result, next, form) {
  const started = performance.now();
  const body = form.elements.body?.value;
  const headers = body === undefined ? authorization() : { ...authorization(), "content-type": form.elements.body.dataset.type };
  let answer;
  try {
    // A stream has no end: the page asks for one answer instead.
    answer = await fetch(address, { method, headers: { accept: "application/json", ...headers }, body });
  } catch (error) {
    result.replaceChildren(element("p", { className: "failed", textContent: `The server cannot be reached: ${error.message}` }));
    return;
  }
  const text = await answer.text();
  let shown = text;
  let cursor = null;
  try {
    const parsed = JSON.parse(text);
    shown = JSON.stringify(parsed, null, 2);
    cursor = parsed.next_cursor ?? null;
  } catch { /* shown as it came */ }
  const took = Math.round(performance.now() - started);
  result.replaceChildren(
    element("h3", { className: answer.ok ? "" : "failed", textContent: `${answer.status} ${answer.statusText} in ${took} ms` }),
    element("pre", { textContent: `${method} ${address}`, className: "address" }),
    element("pre", { textContent: shown }),
  );
  next.disabled = cursor === null;
  if (cursor !== null) next.onclick = () => { form.elements.cursor.value = cursor; form.requestSubmit(); };
}

function bodyFor(operation) {
  const content = operation.requestBody?.content;
  if (content === undefined) return [];
  const [type, { schema }] = Object.entries(content)[0];
  const shown = schema.oneOf?.[0] ?? schema;
  const example = Object.fromEntries((shown.required ?? []).map((name) => [name, ""]));
  const input = element("textarea", { id: `${operation.operationId}-body`, name: "body", rows: 3, spellcheck: false });
  input.value = JSON.stringify(shown.type === "array" ? [] : example);
  input.dataset.type = type;
  return [element("div", { className: "field" }, element("label", { htmlFor: input.id, textContent: "body" }), input, element("small", { textContent: type }))];
}

function callFor(path, verb, operation) {
  const method = verb.toUpperCase();
  const parameters = operation.parameters ?? [];
  const result = element("div", { role: "status" });
  const next = element("button", { type: "button", textContent: "Next page", disabled: true });
  const form = element("form", {}, ...parameters.map((each) => fieldFor(each, operation.operationId)));
  form.append(...bodyFor(operation), element("button", { type: "submit", textContent: "Send" }));
  if (parameters.some((each) => each.name === "cursor")) form.append(next);
  const answers = Object.values(operation.responses)[0].content ?? {};
  const schema = (answers["application/json"] ?? Object.values(answers)[0] ?? { schema: {} }).schema;
  const shape = element("details", {}, element("summary", { textContent: "Shape of the answer" }), element("pre", { textContent: JSON.stringify(schema, null, 2) }));
  form.append(result, shape);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(method, addressOf(path, parameters, form), result, next, form);
  });
  const heading = element("summary", {}, element("code", { textContent: `${method} ${path}` }), element("span", { textContent: operation.summary }));
  return element("details", { id: operation.operationId }, heading, form);
}

async function show() {
  const calls = document.getElementById("calls");
  try {
    const api = await (await fetch("/openapi.json")).json();
    document.getElementById("title").textContent = `${api.info.title} ${api.info.version}`;
    document.getElementById("description").textContent = api.info.description;
    document.getElementById("access").hidden = api.components.securitySchemes === undefined;
    const all = Object.entries(api.paths).flatMap(([path, verbs]) => Object.entries(verbs).map(([verb, call]) => callFor(path, verb, call)));
    calls.replaceChildren(...all);
  } catch (error) {
    calls.replaceChildren(element("p", { className: "failed", textContent: `The description cannot be loaded: ${error.message}` }));
  }
}

document.getElementById("access").addEventListener("submit", (event) => event.preventDefault());
show();
