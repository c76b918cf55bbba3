import { ASSETS } from "./assets.ts";
import type { PageEntry } from "./layout.ts";

/** The interactive reference, made in the browser from `/openapi.json`. */
export const REFERENCE: PageEntry = { path: "/docs", title: "API reference" };

export const REFERENCE_HEAD = `<link rel="stylesheet" href="${ASSETS["swagger-ui.css"].path}">
<link rel="stylesheet" href="${ASSETS["reference.css"].path}">
<script defer src="${ASSETS["swagger-ui-bundle.js"].path}"></script>
<script defer src="${ASSETS["reference.js"].path}"></script>
`;

export const REFERENCE_CONTENT = `<h1>API reference</h1>
<p>Every endpoint with its parameters, answers and errors. To try one: choose <b>Authorize</b> and give an API key, open an
endpoint, choose <b>Try it out</b>, then <b>Execute</b>. The request goes to this service and has its full effect; with a
test key (<code>mk_test_…</code>) it cannot send mail. The key stays in this page and is forgotten when you leave it.</p>
<p>New here? Begin with <a href="/docs/getting-started">Getting started</a>. For programs:
<a href="/openapi.json">openapi.json</a>.</p>
<div id="reference"><p role="status">Loading the reference …</p></div>
<noscript><p>The reference needs JavaScript. The guides do not, and <a href="/openapi.json">openapi.json</a> holds the same
facts.</p></noscript>
`;
