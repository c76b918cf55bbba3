// Renders the reference from the document of this origin. Runs in the browser as it is.
const container = document.getElementById("reference");

/** Follows the colour scheme of the system, as the rest of the page does. */
function followColorScheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.addEventListener("change", apply);
  apply();
}

/** The value behind a path of names in the document. */
const valueAt = (root, names) => names.reduce((value, name) => value?.[name], root);

/** The value behind a reference of the document to itself, "#/components/schemas/List". */
function target(root, reference) {
  const names = reference.slice("#/".length).split("/");
  return valueAt(
    root,
    names.map((name) => decodeURIComponent(name).replaceAll("~1", "/").replaceAll("~0", "~")),
  );
}

/**
 * A copy of a value with what its references name in their place. A schema gets its name as its title. A reference inside
 * of what it names stays.
 */
function resolved(root, value, around = []) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map((item) => resolved(root, item, around));
  const { $ref: reference, ...beside } = value;
  if (typeof reference !== "string") {
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, resolved(root, item, around)]));
  }
  if (around.includes(reference)) return value;
  const title = reference.startsWith("#/components/schemas/") ? { title: reference.split("/").at(-1) } : {};
  return resolved(root, { ...title, ...target(root, reference), ...beside }, [...around, reference]);
}

/** The operations of a document's paths. */
const operationsOf = ({ paths }) => Object.values(paths).flatMap((item) => Object.values(item));

/** Changes each value of an object. */
const mapValues = (object, change) =>
  Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value, name)]));

/** The response headers that every success of the document has. */
function commonHeaders(root) {
  const successes = operationsOf(root).flatMap(({ responses }) =>
    Object.entries(responses).flatMap(([status, { headers = {} }]) => (status < 300 ? [Object.keys(headers)] : [])),
  );
  const [first = [], ...others] = successes;
  return first.filter((name) => others.every((names) => names.includes(name)));
}

/**
 * The document as people read and try it. Programs find all of it in the document itself.
 * - An error is one line per code of the operation, which leads to its remedy, beside its status.
 * - The operations that follow after one are links.
 * - The headers of every answer are named once.
 * - The events, which are callbacks of one operation, are webhooks.
 * - A field for a parameter begins empty: the example of a cursor or of an Idempotency-Key would only be refused.
 */
function forReaders(root) {
  const tagOf = new Map(operationsOf(root).map(({ operationId, tags }) => [operationId, tags[0]]));
  const common = commonHeaders(root);
  const linkTo = ({ operationId }) =>
    `[${operationId}](#/${encodeURIComponent(tagOf.get(operationId))}/${operationId})`;
  const errors = (description, codes) => {
    const lines = description.split("\n").filter((line) => codes.includes(/^- `(\w+)`/.exec(line)?.[1]));
    return lines.join("\n").replaceAll(/^- `(\w+)`/gm, "- [`$1`](/docs/errors#$1)");
  };
  const responseOf = (codes) => (given, status) => {
    const { links = {}, headers = {}, description, ...rest } = given.$ref ? target(root, given.$ref) : given;
    if (status >= 400) return { description: errors(description, codes) };
    const next = Object.values(links).map(linkTo);
    return {
      ...rest,
      headers: Object.fromEntries(Object.entries(headers).filter(([name]) => !common.includes(name))),
      description: next.length === 0 ? description : `${description}\n\nNext: ${next.join(", ")}.`,
    };
  };
  const parameter = (given) => {
    const { example, examples, ...rest } = given.$ref ? target(root, given.$ref) : given;
    return rest;
  };
  const operation = ({ parameters = [], responses, description, callbacks, "x-error-codes": own, ...rest }) => ({
    ...rest,
    description: description.replace(/\n\n\*\*Errors:\*\* .*$/, ""),
    parameters: parameters.map(parameter),
    responses: mapValues(responses, responseOf([...root["x-error-codes"], ...own])),
  });
  // The renderer shows callbacks inside of their operation alone, where no filter and no link finds them.
  const events = Object.entries(Object.assign({}, ...operationsOf(root).map(({ callbacks }) => callbacks)));
  const webhooks = Object.fromEntries(events.map(([name, byUrl]) => [name, Object.values(byUrl)[0]]));
  // Its first sentence, for the dialog that asks for a key: the scopes stand beside each operation.
  const scheme = ({ description, ...rest }) => ({ ...rest, description: /^.*?\.(?= |$)/s.exec(description)?.[0] });
  // The renderer warns of every dialect but its own.
  const { jsonSchemaDialect, ...rest } = root;
  const { origin } = location;
  const headers = common.map((name) => `\`${name}\``).join(", ");
  return {
    ...rest,
    info: { ...root.info, description: `${root.info.description}\n\nEvery success carries the headers ${headers}.` },
    components: { ...root.components, securitySchemes: mapValues(root.components.securitySchemes, scheme) },
    paths: mapValues(root.paths, (item) => mapValues(item, operation)),
    webhooks,
    // Requests go to the origin that served this page, by whatever name it was reached.
    servers: root.servers.map((server) => ({ ...server, url: origin + new URL(server.url, origin).pathname })),
  };
}

/** Resolves references in a moment: the renderer's own way reads the whole document for each operation that is opened. */
const resolveQuickly = {
  fn: { resolveSubtree: async (root, names) => ({ spec: resolved(root, valueAt(root, names)), errors: [] }) },
};

/** Buttons with no other control inside: one lock above the list takes the key, and a press on an operation makes its link. */
const plainButtons = {
  wrapComponents: {
    authorizeOperationBtn: () => () => null,
    DeepLink: (Original) => (props) => Original({ ...props, enabled: false }),
  },
};

/** The page has a main part already, around the renderer's. */
const oneMain = {
  wrapComponents: {
    VersionPragmaFilter:
      (Original, { React }) =>
      (props) => {
        const parts = React.Children.map(props.children, (part) =>
          part?.type === "main" ? React.createElement("div", part.props) : part,
        );
        return React.createElement(Original, props, parts);
      },
  },
};

/** For those who hear the page or use the keyboard: names of choices, levels of headings, texts that scroll. */
function mendForReaders() {
  for (const choice of container.querySelectorAll("select:not([aria-label])")) {
    const parameter = choice.closest("[data-param-name]")?.dataset.paramName;
    choice.setAttribute("aria-label", parameter ?? (choice.id === "servers" ? "Server" : "Example"));
  }
  for (const heading of container.querySelectorAll(":is(h3, h4, h5):not([aria-level])")) {
    heading.ariaLevel = String(Number(heading.localName.at(1)) - 1);
  }
  for (const text of container.querySelectorAll("pre:not([tabindex])")) text.tabIndex = 0;
}

/** The controls of an element that Tab reaches. */
const controlsOf = (element) => [...element.querySelectorAll("a[href], button, input, select, textarea")];

/** Makes a dialog of the renderer's for keys: it takes and keeps the focus, Escape ends it, and the focus returns. */
function keepFocusInDialogs() {
  const dialogOf = () => container.querySelector(".dialog-ux");
  let open = null;
  let opener = null;
  document.addEventListener("focusin", ({ target: focused }) => {
    if (!dialogOf()) opener = focused;
  });
  const begin = (dialog) => {
    dialog.setAttribute("role", "dialog");
    dialog.setAttribute("aria-modal", "true");
    dialog.setAttribute("aria-label", dialog.querySelector("h3").textContent);
    dialog.querySelector("button.close-modal").setAttribute("aria-label", "Close");
    // The renderer puts the focus into the last field.
    (dialog.querySelector("input") ?? dialog.querySelector("button")).focus();
  };
  new MutationObserver(() => {
    const dialog = dialogOf();
    if (dialog !== open) {
      open = dialog;
      if (dialog) begin(dialog);
      else (opener?.isConnected ? opener : container.querySelector("button.authorize")).focus();
    } else if (dialog && !dialog.contains(document.activeElement)) {
      // A key was taken, and its field is gone.
      dialog.querySelector("button.btn-done")?.focus();
    }
  }).observe(container, { childList: true, subtree: true });
  document.addEventListener("keydown", (event) => {
    const dialog = dialogOf();
    if (!dialog) return;
    if (event.key === "Escape") dialog.querySelector("button.close-modal").click();
    if (event.key !== "Tab") return;
    const controls = controlsOf(dialog);
    const place = controls.indexOf(document.activeElement) + (event.shiftKey ? -1 : 1);
    event.preventDefault();
    controls.at(place % controls.length).focus();
  });
}

/** Whether each word of a filter is in the method, path, name, summary or groups of an operation. */
function fits({ method, path, operation }, filter) {
  const texts = [method, path, operation.get("operationId"), operation.get("summary"), ...operation.get("tags", [])];
  const searched = texts.join(" ").toLowerCase();
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((word) => searched.includes(word));
}

/** Filters operations by their texts, and webhooks too: the renderer's own way compares the names of the groups alone. */
const filterOperations = () => ({
  fn: {
    opsFilter: (groups, filter) =>
      groups
        .map((group) =>
          group.update("operations", (entries) => entries.filter((entry) => fits(entry.toObject(), filter))),
        )
        .filter((group) => group.get("operations").size > 0),
  },
  statePlugins: {
    spec: {
      wrapSelectors: {
        selectWebhooksOperations:
          (original, system) =>
          (...given) => {
            const webhooks = original(...given);
            const filter = system.layoutSelectors.currentFilter();
            if (!webhooks || typeof filter !== "string") return webhooks;
            const hasFitting = ([, entries]) =>
              entries.some((entry) => fits({ ...entry, operation: entry.operation.get("operation") }, filter));
            return Object.fromEntries(Object.entries(webhooks).filter(hasFitting));
          },
      },
    },
  },
});

/** Says in the field of the filter what it searches, in few enough letters for a phone. */
function nameFilter() {
  const field = container.querySelector(".operation-filter-input");
  if (!field || field.placeholder === "Filter operations") return;
  field.placeholder = "Filter operations";
  field.setAttribute("aria-label", "Filter operations by method, path, name or summary");
}

async function show() {
  const response = await fetch("/openapi.json");
  if (!response.ok) throw new Error(`/openapi.json answered ${response.status}`);
  const spec = forReaders(await response.json());
  container.replaceChildren();
  new MutationObserver(() => {
    mendForReaders();
    nameFilter();
  }).observe(container, { childList: true, subtree: true });
  keepFocusInDialogs();
  const ui = globalThis.SwaggerUIBundle({
    domNode: container,
    spec,
    plugins: [resolveQuickly, filterOperations, plainButtons, oneMain],
    layout: "BaseLayout",
    deepLinking: true,
    docExpansion: "list",
    defaultModelsExpandDepth: -1,
    displayRequestDuration: true,
    filter: true,
    // No third party is asked whether the document is valid.
    validatorUrl: null,
  });
  // The renderer opens links of a text in another tab, which would not have the key.
  container.addEventListener("click", (event) => {
    const link = event.target.closest('.renderedMarkdown a[href^="#/"]');
    if (!link) return;
    event.preventDefault();
    ui.getSystem().layoutActions.parseDeepLinkHash(link.hash);
    const [, tag, operationId] = decodeURIComponent(link.hash).split("/");
    document.querySelector(`[id="operations-${tag.replaceAll(" ", "_")}-${operationId}"] button`).focus();
  });
}

followColorScheme();
show().catch((error) => {
  const problem = document.createElement("p");
  problem.setAttribute("role", "alert");
  problem.textContent = `The reference cannot be shown: ${error.message}. Try again in a moment.`;
  container.replaceChildren(problem);
});
