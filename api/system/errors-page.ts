import { ERRORS } from "../../domain/errors.ts";
import { escapeHtml } from "../../domain/mail/template.ts";

const rows = Object.entries(ERRORS).map(
  ([code, { status, type, meaning }]) =>
    `<tr id="${code}"><th scope="row"><a href="#${code}"><code>${code}</code></a></th><td>${status}</td><td><code>${type}</code></td><td>${escapeHtml(meaning)}</td></tr>`,
);

/** The page behind the `doc_url` of an error: the registry of errors, with an anchor per code. */
export const ERRORS_PAGE = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Errors of the API</title>
<style>
  body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; color: #222; }
  table { border-collapse: collapse; width: 100%; }
  th, td { padding: .4rem .6rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; font-weight: normal; }
  a { color: inherit; text-decoration: none; }
  tr:target { background: #fff3c4; }
</style>
<h1>Errors of the API</h1>
<p>Branch on <code>type</code>, or on <code>code</code>, which is never renamed; the message is for people.</p>
<table>
<thead><tr><th scope="col">code</th><th scope="col">status</th><th scope="col">type</th><th scope="col">meaning</th></tr></thead>
<tbody>
${rows.join("\n")}
</tbody>
</table>
`;
