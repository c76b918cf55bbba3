import { useState } from "react";
import type { DataOf } from "../api.ts";
import { Act } from "../parts/act.tsx";
import { Field, Inputs, type Values } from "../parts/form.tsx";
import { More } from "../parts/more.tsx";
import { Copy, Facts, PageHead, State } from "../parts/page.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

const STATES = { true: ["Ready", "good"], false: ["Rejects all reports until this is set", "warn"] } as const;

const ANY_TOPIC = "Leave empty for the first topic that asks for confirmation.";
const PUBLIC_KEY = "SendGrid shows it where you turn on signing for its event webhook.";
const SIGNING_KEY = "The provider shows it next to its webhooks. It is stored encrypted, and not shown again.";
/** The inputs of a webhook, by what its provider needs. */
const INPUTS = {
  topicArn: [["topic", "SNS topic ARN", { hint: ANY_TOPIC }]],
  publicKey: [["public_key", "Verification key", { hint: PUBLIC_KEY, autoComplete: "off" }]],
  signingKey: [["signing_key", "Signing key", { type: "password", hint: SIGNING_KEY, autoComplete: "new-password" }]],
  password: [],
} as const;

/** The values of inputs that are not empty. */
const givenIn = (values: Values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));

const useProviders = () => useWorkspace().client.app.accounts.providers;

/** The webhooks by which providers report bounces and complaints. Members who are no admins see the service's refusal. */
export function Page() {
  const calls = useProviders();
  const { sources, providers } = useData(["providers"], () => calls.list.query({}));
  return (
    <>
      <PageHead title="Providers">{useRole("ADMIN") && <Add providers={providers} />}</PageHead>
      <p>
        If you send through one of these providers, it can report bounces and complaints here: addresses that do not
        exist and people who complained then get no more emails.
      </p>
      {sources.length === 0 && (
        <p className="empty">
          No providers yet. Add yours, then paste the address shown here into the provider's settings.
        </p>
      )}
      {sources.map((source) => (
        <Provider key={source.id} {...source} />
      ))}
    </>
  );
}

type Listed = DataOf<ReturnType<typeof useProviders>["list"]["query"]>;

function Add({ providers }: Pick<Listed, "providers">) {
  const calls = useProviders();
  const [chosen, setChosen] = useState<string>("POSTMARK");
  const needs = providers.find(({ provider }) => provider === chosen)?.needs ?? "password";
  return (
    <Act
      title="Add a provider"
      kind="primary"
      onOpen={() => setChosen("POSTMARK")}
      act={(values) => calls.add.mutate({ body: { ...givenIn(values), provider: chosen as "SES" } })}
    >
      <Field
        label="Provider"
        name="provider"
        choices={Object.fromEntries(providers.map(({ provider, name }) => [provider, name]))}
        value={chosen}
        onChange={setChosen}
      />
      <Inputs key={needs} inputs={INPUTS[needs]} />
    </Act>
  );
}

function Provider({ id, name, needs, events, url, user, password, topic, is_ready }: Listed["sources"][number]) {
  const calls = useProviders();
  const params = { sourceId: id };
  const [input] = INPUTS[needs];
  return (
    <section className="card stack" aria-label={name}>
      <div className="head">
        <h2>{name}</h2>
        <div className="actions">
          {input && (
            <Act
              title="Change settings"
              inputs={[[input[0], input[1], { ...input[2], required: true }]]}
              act={(values) => calls.change.mutate({ params, body: givenIn(values) })}
            />
          )}
          <More of={name}>
            <Act
              title="Remove"
              kind="danger"
              note="Its address stops working. Remove it from the provider's settings, too."
              act={() => calls.remove.mutate({ params })}
            />
          </More>
        </div>
      </div>
      <Facts
        of={[
          ["Status", <State key="state" of={STATES} is={String(is_ready)} />],
          ["Address to paste", <Copy key="url" text={url} name="the address" />],
          ["User name, if asked for", user],
          ["Password, if asked for", password && <Copy key="password" text={password} name="the password" />],
          ["Topic", topic],
          ["Events", events],
        ]}
      />
    </section>
  );
}
