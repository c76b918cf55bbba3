/*
 * Sends the sign-up forms of a page in place, and shows the answers beside them. Where anything fails, the browser posts the
 * form itself, as it does without this script.
 */
(() => {
  const base = new URL(".", document.currentScript.src).href;
  let proof;
  const isOurs = (form) => form instanceof HTMLFormElement && form.action.startsWith(base);
  const loadProof = () => {
    proof ??= import(`${base}proof.js`);
    return proof;
  };
  // It solves the challenge at once.
  document.querySelector("[data-sign-up-wait]")?.remove();

  /** @param field that the text is about; without one it stands at the end of the form */
  function say(form, text, field) {
    for (const old of form.querySelectorAll("[role=alert]")) old.remove();
    for (const other of form.elements) other.removeAttribute("aria-invalid");
    const line = document.createElement("p");
    line.setAttribute("role", "alert");
    line.textContent = text;
    if (!field) return form.append(line);
    line.id = `mailkeel-${field.name}`;
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-describedby", line.id);
    (field.closest("p") ?? field).after(line);
    field.focus();
  }

  async function send(form) {
    const given = Object.fromEntries(new FormData(form));
    const [{ solve }, challenge] = await Promise.all([loadProof(), fetch(`${form.action}/challenge`)]);
    const answer = await fetch(form.action, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...given, proof: await solve(await challenge.json()) }),
    });
    const { error, title, message, url } = await answer.json();
    if (error) return say(form, error.message, form.elements.namedItem(error.field ?? ""));
    if (url) return location.assign(url);
    const line = document.createElement("p");
    line.setAttribute("role", "status");
    line.tabIndex = -1;
    line.textContent = message;
    form.replaceChildren(line);
    // Not on a website, whose title is its own.
    if (form.action === location.origin + location.pathname) document.querySelector("h1").textContent = title;
    line.focus();
  }

  document.addEventListener("focusin", ({ target }) => {
    if (isOurs(target.form)) loadProof().catch(() => {});
  });
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!isOurs(form) || event.defaultPrevented) return;
    event.preventDefault();
    const button = event.submitter ?? {};
    const busy = document.createTextNode(" …");
    button.disabled = true;
    button.append?.(busy);
    await send(form).catch(() => form.submit());
    button.disabled = false;
    busy.remove();
  });
})();
