import { createHash } from "node:crypto";
import { escapeHtml } from "../../domain/mail/template.ts";

const STYLE = `
  body { margin: 0; font: 1rem/1.5 system-ui, sans-serif; color: #222; background: #f4f4f2; }
  main { max-width: 28rem; margin: 15vh auto 0; padding: 2rem; background: #fff; border-radius: .5rem; }
  h1 { margin-top: 0; font-size: 1.3rem; overflow-wrap: anywhere; }
  form { display: flex; flex-direction: column; align-items: flex-start; gap: .75rem; }
  button { font: inherit; padding: .6rem 1.2rem; border: 0; border-radius: .3rem; color: #fff; background: #1f5f8b;
    max-width: 100%; overflow-wrap: anywhere; text-align: start; cursor: pointer; }
  button:focus-visible { outline: 3px solid #222; outline-offset: 2px; }
`;

/** A page may apply this one style and post its form back, and nothing else. */
const POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${createHash("sha256").update(STYLE).digest("base64")}'`,
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** Headers of every public page: it loads nothing, is not stored or indexed, and sends no referrer. */
export const PAGE_HEADERS = {
  "Content-Type": "text/html; charset=utf-8",
  "Content-Security-Policy": POLICY,
  "Cache-Control": "no-store",
  "Referrer-Policy": "no-referrer",
  "X-Robots-Tag": "noindex, nofollow",
};

export interface Page {
  title: string;
  /** Plain text, one paragraph each. */
  paragraphs: string[];
  buttons?: Button[];
}

interface Button {
  label: string;
  /** Posted as `scope` where the page has several buttons. */
  scope?: string;
}

export const GONE: Page = {
  title: "This link does not work",
  paragraphs: ["The link may be incomplete. Open it from the mail once more, or copy all of it."],
};

/** The page of a confirmation link whose sign-up has ended. */
export const SPENT: Page = {
  title: "This link no longer works",
  paragraphs: ["It belongs to an earlier sign-up. If you want to get the mail, sign up again."],
};

/** Renders a page for recipients. All values are text: markup in them is shown, never interpreted. */
export function renderPage({ title, paragraphs, buttons = [] }: Page): string {
  const text = paragraphs.map((paragraph) => `<p>${escapeHtml(paragraph)}</p>`).join("\n");
  const shown = buttons.map(({ label, scope }) => {
    const value = scope === undefined ? "" : ` name="scope" value="${scope}"`;
    return `<button${value}>${escapeHtml(label)}</button>`;
  });
  const form = shown.length === 0 ? "" : `<form method="post">${shown.join("\n")}</form>`;
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>${STYLE}</style>
<main>
<h1>${escapeHtml(title)}</h1>
${text}
${form}
</main>
`;
}
