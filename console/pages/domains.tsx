import { useQuery } from "@tanstack/react-query";
import { capitalized, type DataOf } from "../api.ts";
import { Act } from "../parts/act.tsx";
import { Refused } from "../parts/form.tsx";
import { More } from "../parts/more.tsx";
import { Copy, Facts, PageHead, Problem, State, When } from "../parts/page.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

const STATES = {
  ok: ["In place", "good"],
  missing: ["Missing", "wrong"],
  wrong: ["Wrong", "wrong"],
  unknown: ["DNS did not answer", "warn"],
} as const;
const USES = {
  signing: ["Signing", "good"],
  waiting: ["Waiting for its record", "warn"],
  replaced: ["Replaced", "muted"],
} as const;

function useDomains() {
  const { client } = useWorkspace();
  const calls = client.app.accounts.domains;
  const addKey = (domain: string, algorithm: string | undefined, isFirst: boolean) =>
    calls.addKey.mutate({ body: { domain, algorithm: algorithm as "rsa", is_first: isFirst } });
  return { calls, addKey };
}

const KINDS = { rsa: "RSA, which every mailbox provider can check", ed25519: "Ed25519, as a second key next to RSA" };
const ALGORITHM = ["algorithm", "Key type", { choices: KINDS }] as const;
const KEEP = "It no longer signs. Keep its record until the date shown here: emails may still be under way.";
const DOMAIN_HINT = "The part of your from address after the @.";

/** The sending domains of a team, with the records that prove their mails. */
export function Page() {
  const { calls, addKey } = useDomains();
  const { domains, unsigned } = useData(["domains"], () => calls.list.query({}));
  return (
    <>
      <PageHead title="Domains">
        {useRole("ADMIN") && (
          <Act
            title="Add a domain"
            kind="primary"
            inputs={[["domain", "Domain", { required: true, suggestions: unsigned, hint: DOMAIN_HINT }], ALGORITHM]}
            act={({ domain = "", algorithm }) => addKey(domain, algorithm, true)}
          />
        )}
      </PageHead>
      <p>
        Mailbox providers trust emails more if your domain signs them.
        {domains.length > 0 &&
          " Publish these records in your domain's DNS; it may take an hour until a new record is found."}
      </p>
      {domains.length === 0 && (
        <p className="empty">
          No domains yet. Add the one you send newsletters from, then publish the records shown here.
        </p>
      )}
      {domains.map((domain) => (
        <Domain key={domain.domain} {...domain} />
      ))}
    </>
  );
}

type Calls = ReturnType<typeof useDomains>["calls"];
type Domains = DataOf<Calls["list"]["query"]>["domains"];
type Key = Domains[number]["keys"][number];

function Domain({ domain, keys, records }: Domains[number]) {
  const { base } = useWorkspace();
  const { calls, addKey } = useDomains();
  const mayWrite = useRole("ADMIN");
  const check = useQuery({
    // Other keys have other records.
    queryKey: [base, "domains", domain, keys.map(({ id }) => id).join()],
    queryFn: () => calls.check.mutate({ body: { domain } }),
    staleTime: "static",
    gcTime: 60_000,
  });
  return (
    <section className="card stack" aria-label={domain}>
      <div className="head">
        <h2>{domain}</h2>
        <div className="actions">
          <button type="button" disabled={check.isFetching} onClick={() => check.refetch()}>
            {check.isFetching ? "Checking…" : "Check now"}
          </button>
          {mayWrite && (
            <Act
              title="Rotate the key"
              note="A new key is created. The current one signs until you publish the new record and activate its key."
              inputs={[ALGORITHM]}
              act={({ algorithm }) => addKey(domain, algorithm, false)}
            />
          )}
        </div>
      </div>
      {!keys.some(({ use }) => use === "signing") && <p className="warn">No key signs this domain's emails yet.</p>}
      <Problem error={check.error} />
      {records.map(({ purpose, name, type, value }) => {
        const found = check.data?.data.find((one) => one.purpose === purpose && one.name === name);
        const key = purpose === "DKIM" ? keys.find(({ record_name }) => record_name === name) : undefined;
        const isWrong = found !== undefined && found.state !== "ok";
        return (
          <article key={`${purpose} ${name}`} className="stack">
            <h3>
              {purpose} {found && <State of={STATES} is={found.state} />}
              {key && <State of={USES} is={key.use} />}
            </h3>
            <Facts
              of={[
                ["Name", <Copy key="name" text={name} name={`the name of the ${purpose} record`} />],
                ["Type", type],
                ["Value", <Copy key="value" text={value} name={`the value of the ${purpose} record`} />],
                ["Found", isWrong && found.found.length > 0 && <code>{found.found.join("\n")}</code>],
                ["To do", found?.todo && `${capitalized(found.todo)}.`],
                ["Keep it until", key?.use === "replaced" && <When at={key.keep_record_until} />],
              ]}
            />
            {key && mayWrite && <KeyActions {...key} isFound={found?.state === "ok"} />}
          </article>
        );
      })}
      {!records.some(({ purpose }) => purpose === "SPF") && (
        <p className="muted">Connect an account that sends from this domain to see its SPF record.</p>
      )}
    </section>
  );
}

function KeyActions({ id: keyId, domain, use, keep_record_until: keptUntil, isFound }: Key & { isFound: boolean }) {
  const { calls } = useDomains();
  const params = { keyId };
  return (
    <div className="actions">
      {use === "waiting" &&
        (isFound ? (
          <Act
            title="Activate"
            kind="primary"
            note="Its record is looked up once more. If it is found, this key signs emails from now on."
            act={() => calls.activate.mutate({ params, body: {} })}
          />
        ) : (
          <span className="muted">The key can be activated once its record is found.</span>
        ))}
      <More of="this key">
        <Act
          title="Remove this key"
          kind="danger"
          {...(use !== "signing" && {
            note: keptUntil ? KEEP : "It has signed no emails. You can delete its record, too.",
          })}
          act={({ force }) => calls.remove.mutate({ params, body: { force: force === "on" } })}
        >
          {use === "signing" && (
            <label>
              <input type="checkbox" name="force" required /> Leave emails from {domain} unsigned. To replace the key,
              rotate it instead.
              <Refused name="force" />
            </label>
          )}
        </Act>
      </More>
    </div>
  );
}
