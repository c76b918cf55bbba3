// Renders the reference from the document of this origin. Runs in the browser as it is.
const container = document.getElementById("reference");

/** Follows the colour scheme of the system, as the rest of the page does. */
function followColorScheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.addEventListener("change", apply);
  apply();
}

/** Requests go to the origin that served this page, by whatever name it was reached. */
const onThisOrigin = ({ url, ...server }) => {
  const { pathname } = new URL(url, location.href);
  return { ...server, url: location.origin + pathname.replace(/\/$/, "") };
};

async function show() {
  const response = await fetch("/openapi.json");
  if (!response.ok) throw new Error(`/openapi.json answered ${response.status}`);
  const document = await response.json();
  container.replaceChildren();
  globalThis.SwaggerUIBundle({
    domNode: container,
    spec: { ...document, servers: (document.servers ?? []).map(onThisOrigin) },
    layout: "BaseLayout",
    deepLinking: true,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    filter: true,
    // No third party is asked whether the document is valid.
    validatorUrl: null,
  });
}

followColorScheme();
show().catch((error) => {
  const problem = globalThis.document.createElement("p");
  problem.setAttribute("role", "alert");
  problem.textContent = `The reference cannot be shown: ${error.message}. Try again in a moment.`;
  container.replaceChildren(problem);
});
