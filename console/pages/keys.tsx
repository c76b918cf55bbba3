import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { Act, Copy } from "../parts/act.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { ChoiceFilter, FilterBar, SearchFilter, useFilters, When } from "../parts/filters.tsx";
import { Field, Form } from "../parts/form.tsx";
import { Empty, Loading, PageHead, Problem } from "../parts/page.tsx";
import { type Scope, ScopeChoice, sends } from "../parts/scopes.tsx";
import { Table } from "../parts/table.tsx";
import { useRole, useWorkspace } from "../session.tsx";

const NUMBER = new Intl.NumberFormat();
const DEFAULT_CAP = 50_000;
const GRACE = { "0": "It stops at once", "1": "1 hour", "24": "1 day", "168": "7 days" };

/** The API keys of a team in one environment. */
export function Page() {
  const mayManage = useRole("ADMIN");
  if (mayManage) return <Keys />;
  return (
    <>
      <PageHead title="Keys" />
      <Empty>
        <p>An ADMIN or an OWNER of the team makes keys. By a key a program of yours uses the API.</p>
      </Empty>
    </>
  );
}

function Keys() {
  const { client, base, environment } = useWorkspace();
  const queries = useQueryClient();
  const [{ q = "", state }] = useFilters();
  const [secret, setSecret] = useState<string>();
  const shownState = state === "ended" ? "ended" : "working";
  const query = useQuery({
    queryKey: [base, "keys", shownState],
    queryFn: () => client.app.team.keys.query({ query: { state: shownState } }),
  });
  const changed = () => queries.invalidateQueries({ queryKey: [base, "keys"] });
  const { rotateKey, revokeKey, renewConsoleKey } = client.app.team;
  const { keys = [], own_console_key } = query.data?.data ?? {};
  const found = keys.filter(({ name, key_id, member }) =>
    `${name} ${key_id} ${member.name}`.toLowerCase().includes(q.toLowerCase()),
  );
  return (
    <>
      <PageHead title="Keys">
        <Mint onMinted={setSecret} onChanged={changed} />
      </PageHead>
      <p>
        By a key a program of yours uses the API, as you and for this team.
        {environment === "test" && " A test key sends nothing."}
      </p>
      {own_console_key === "revoked" && (
        <div className="notice actions">
          <span>The key by which you send in the console was revoked: you cannot send until you renew it.</span>
          <Act
            title="Renew"
            act={async () => {
              await renewConsoleKey.mutate({});
              await changed();
            }}
          >
            <p>You can send again. What you sent today still counts for the new key.</p>
          </Act>
        </div>
      )}
      <FilterBar>
        <SearchFilter name="q" label="Name, key or member" />
        <ChoiceFilter name="state" label="State" any="Keys that work" choices={{ ended: "Revoked and expired keys" }} />
      </FilterBar>
      {query.isPending && <Loading />}
      <Problem error={query.error} />
      {query.data && found.length === 0 && (
        <Empty>
          <p>No such key. Make one for each program that uses the API, so that each can be revoked by itself.</p>
        </Empty>
      )}
      {found.length > 0 && (
        <Table
          caption="Keys"
          rows={found}
          keyOf={({ id }) => id}
          columns={[
            {
              name: "Name",
              cell: ({ name, key_id, is_of_console }) => (
                <>
                  {name}
                  {is_of_console ? (
                    <p className="muted">Of sessions in this console</p>
                  ) : (
                    <p>
                      <code>{key_id}_…</code>
                    </p>
                  )}
                </>
              ),
            },
            { name: "Member", cell: ({ member, is_yours }) => (is_yours ? `${member.name} (you)` : member.name) },
            {
              name: "State",
              cell: ({ state, expires_at, member }) => (
                <>
                  {member.has_left ? "stopped: its member has left" : state}
                  {state === "works" && expires_at && (
                    <p className="muted">
                      until <When at={expires_at} />
                    </p>
                  )}
                </>
              ),
            },
            {
              name: "May do",
              cell: ({ scopes, requires_approval }) => (
                <details>
                  <summary>{scopes.length === 1 ? scopes[0] : `${scopes.length} scopes`}</summary>
                  {scopes.join(", ")}
                  {requires_approval && <p>Each send needs an approval.</p>}
                </details>
              ),
            },
            {
              name: "Sends from",
              cell: ({ scopes, send_domains }) => (sends(scopes) ? send_domains.join(", ") || "no domain yet" : "–"),
            },
            {
              name: "Mails a day",
              isNumber: true,
              cell: ({ scopes, daily_send_cap }) => (sends(scopes) ? NUMBER.format(daily_send_cap) : "–"),
            },
            {
              name: "",
              cell: ({ id, name, state, is_yours, is_of_console }) =>
                state === "works" && (
                  <div className="actions">
                    {is_yours && !is_of_console && (
                      <Act
                        title={`Rotate ${name}`}
                        short="Rotate"
                        inputs={[["grace", "How long the old key still works", { choices: GRACE }]]}
                        act={async ({ grace }) => {
                          const body = { key_id: id, grace_hours: Number(grace) };
                          setSecret((await rotateKey.mutate({ body })).data.secret);
                          await changed();
                        }}
                      >
                        <p>You get a new key that may do the same. Put it into your program while the old one works.</p>
                      </Act>
                    )}
                    <Act
                      title={`Revoke ${name}`}
                      short="Revoke"
                      kind="danger"
                      act={async () => {
                        await revokeKey.mutate({ body: { key_id: id } });
                        await changed();
                      }}
                    >
                      <p>
                        {is_of_console
                          ? "Its member cannot send in the console until they renew it. Sends that were confirmed by it and have not ended are stopped."
                          : "Programs that use it are refused at once, and sends of it that have not ended are stopped. This cannot be undone."}
                      </p>
                    </Act>
                  </div>
                ),
            },
          ]}
        />
      )}
      {secret !== undefined && (
        <Dialog title="Your new key" onClose={() => setSecret(undefined)}>
          <p>Copy it now, and keep it like a password: it is not shown again.</p>
          <Copy text={secret} name="the key" />
          <div className="actions">
            <button type="button" className="primary" onClick={() => setSecret(undefined)}>
              I have copied it
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}

interface MintProps {
  onMinted: (secret: string) => void;
  onChanged: () => Promise<unknown>;
}

function Mint({ onMinted, onChanged }: MintProps) {
  const { client } = useWorkspace();
  const [isOpen, setOpen] = useState(false);
  const [scopes, setScopes] = useState<Scope[]>([]);
  const intent = useRef({ text: "", key: "" });
  const mint = async (values: Record<string, string>) => {
    const body = {
      name: values["name"] ?? "",
      scopes,
      send_domains: (values["send_domains"] ?? "").split(/[\s,]+/).filter((domain) => domain !== ""),
      daily_send_cap: Number(values["daily_send_cap"] ?? DEFAULT_CAP),
      expires_at: values["expires_at"] ? new Date(values["expires_at"]).toISOString() : null,
    };
    const text = JSON.stringify(body);
    if (intent.current.text !== text) intent.current = { text, key: crypto.randomUUID() };
    const { data } = await client.app.team.mintKey.mutate(
      { body },
      { context: { idempotencyKey: intent.current.key } },
    );
    setOpen(false);
    setScopes([]);
    onMinted(data.secret);
    await onChanged();
  };
  return (
    <>
      <button type="button" className="primary" onClick={() => setOpen(true)}>
        New key
      </button>
      {isOpen && (
        <Dialog title="New key" onClose={() => setOpen(false)}>
          <Form
            fields={["name", "scopes", "send_domains", "daily_send_cap", "expires_at"]}
            submit="Make the key"
            isDisabled={scopes.length === 0}
            onSubmit={mint}
          >
            {(problemOf) => (
              <>
                <Field
                  label="Name"
                  name="name"
                  hint="The program that uses it."
                  required
                  maxLength={200}
                  problem={problemOf("name")}
                />
                <ScopeChoice chosen={scopes} onChange={setScopes} problem={problemOf("scopes")} />
                {sends(scopes) && (
                  <>
                    <Field
                      label="Domains it sends from"
                      name="send_domains"
                      hint="Those of your senders' addresses, with commas between: example.com, example.org"
                      required
                      problem={problemOf("send_domains")}
                    />
                    <Field
                      label="Most mails in a day"
                      name="daily_send_cap"
                      type="number"
                      min={0}
                      max={2_147_483_647}
                      defaultValue={DEFAULT_CAP}
                      hint="A day in UTC."
                      required
                      problem={problemOf("daily_send_cap")}
                    />
                  </>
                )}
                <Field
                  label="Works until"
                  name="expires_at"
                  type="datetime-local"
                  hint="Leave it empty for a key without an end."
                  problem={problemOf("expires_at")}
                />
              </>
            )}
          </Form>
        </Dialog>
      )}
    </>
  );
}
