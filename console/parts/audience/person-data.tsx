import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import type { Client, DataOf } from "../../api.ts";
import { useData, useRole, useWorkspace } from "../../session.tsx";
import { Act } from "../act.tsx";
import { saveFile } from "../export.tsx";
import { Problem, When } from "../page.tsx";

type Request = DataOf<Client["app"]["people"]["requests"]["query"]>["requests"][number];

const POLL_MS = 2_000;

/** The exports and erasures of a person, and what an ADMIN may ask for. */
export function PersonData({ email }: { email: string }) {
  const { client, environment, base } = useWorkspace();
  const { people } = client.app;
  const queries = useQueryClient();
  const isAdmin = useRole("ADMIN");
  const { erased, requests } = useData(["person requests", email], () => people.requests.query({ query: { email } }), {
    poll: (found) => found.requests.some(({ state }) => state === "RUNNING") && POLL_MS,
  });
  const isErasing = requests.some(({ kind, state }) => kind === "ERASURE" && state === "RUNNING");
  const wasErasing = useRef(isErasing);
  // The page around it shows data that is erased.
  useEffect(() => {
    if (wasErasing.current && !isErasing) void queries.invalidateQueries({ queryKey: [base] });
    wasErasing.current = isErasing;
  }, [isErasing, queries, base]);
  if (!erased && !isAdmin) return null;
  return (
    <section className="stack" aria-label="Personal data">
      <h2>Personal data</h2>
      {erased && (
        <p>
          Erased on <When at={erased.at} />
          {erased.by && `, by ${erased.by}`}.
        </p>
      )}
      {isAdmin && requests.map((request) => <Asked key={request.id} {...request} />)}
      {isAdmin && !erased && (
        <div className="actions">
          <Act
            title="Export their data"
            note={`A file of all that this team keeps about ${email}, to give to them. It can be downloaded here for seven days.`}
            act={() => people.exportPerson.mutate({ body: { email } })}
          />
          <Act
            title="Erase this person"
            kind="danger"
            note={`All data about ${email} in the ${environment} environment are deleted, or lose the address, names and fields: subscriber, contact, subscriptions, and the records of emails. Figures stay. From then on the address is refused everywhere. This cannot be undone.`}
            inputs={[["typed", `Type ${email} to confirm`, { required: true, autoComplete: "off" }]]}
            act={({ typed = "" }) => people.erasePerson.mutate({ body: { email, typed } })}
          />
        </div>
      )}
    </section>
  );
}

function Asked({ id, kind, email, state, step, outcome, by, created_at, expires_at }: Request) {
  const { people } = useWorkspace().client.app;
  const { mutate, isPending, error } = useMutation({
    mutationFn: async (as: "html" | "json") => {
      const { text } = (await people.file.query({ params: { requestId: id }, query: { as } })).data;
      saveFile(`data of ${email}.${as}`, [text]);
    },
  });
  return (
    <div className="stack">
      <p role="status">
        {kind === "EXPORT" ? "Export" : "Erasure"} asked for by {by ?? "a former member"}, <When at={created_at} />:{" "}
        {state === "RUNNING" ? `${step ?? "it begins soon"}…` : state === "DONE" ? "done" : `failed. ${step}`}
      </p>
      {kind === "EXPORT" && state === "DONE" && (
        <div className="actions">
          {(["html", "json"] as const).map((as) => (
            <button key={as} type="button" disabled={isPending} onClick={() => mutate(as)}>
              Download {as === "html" ? "to read" : "as JSON"}
            </button>
          ))}
          <span className="muted">
            until <When at={expires_at} />
          </span>
        </div>
      )}
      {outcome && outcome.mentions.length > 0 && (
        <p>Texts of your team still name the address: {outcome.mentions.map((text) => text.id).join(", ")}.</p>
      )}
      <Problem error={error} />
    </div>
  );
}
