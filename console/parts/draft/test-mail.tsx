import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useWorkspace } from "../../session.tsx";
import { Dialog } from "../dialog.tsx";
import { Form } from "../form.tsx";
import { Loading, Problem } from "../page.tsx";
import type { Kind } from "./drafts.ts";

const MOST = 5;

const RESULTS = { sent: "sent", not_sent: "not sent", unknown: "perhaps sent: look into the mailbox" };

/** Sends the saved draft to some members of the team. */
export function TestMail({ kind, id, onClose }: { kind: Kind; id: string; onClose: () => void }) {
  const { client, base } = useWorkspace();
  const [chosen, setChosen] = useState<readonly string[]>([]);
  // A press after a lost answer sends nothing twice; another choice is another test.
  const [idempotencyKey, setKey] = useState(() => crypto.randomUUID());
  const [outcomes, setOutcomes] = useState<Awaited<ReturnType<typeof send>>>();
  const members = useQuery({
    queryKey: [base, "members"],
    queryFn: async () => (await client.app.team.members.query({})).data,
  });
  const send = async () => {
    const body = { type: kind, id, member_ids: [...chosen] };
    return (await client.app.content.sendTest.mutate({ body }, { context: { idempotencyKey } })).data;
  };
  const choose = (ids: readonly string[]) => {
    setChosen(ids);
    setKey(crypto.randomUUID());
    setOutcomes(undefined);
  };
  return (
    <Dialog title="Send a test" onClose={onClose}>
      <p>
        The saved mail goes to up to {MOST} members of the team, over the sender's account, and counts toward your daily
        limit.
      </p>
      {members.isPending && <Loading />}
      <Problem error={members.error} />
      <Form
        fields={[]}
        submit="Send the test"
        isDisabled={chosen.length === 0 || outcomes !== undefined}
        onSubmit={async () => setOutcomes(await send())}
      >
        {() => (
          <ul className="plain">
            {members.data?.map((member) => {
              const outcome = outcomes?.find(({ member_id }) => member_id === member.id)?.outcome;
              return (
                <li key={member.id}>
                  <label>
                    <input
                      type="checkbox"
                      checked={chosen.includes(member.id)}
                      disabled={chosen.length >= MOST && !chosen.includes(member.id)}
                      onChange={({ currentTarget: { checked } }) =>
                        choose([...chosen.filter((other) => other !== member.id), ...(checked ? [member.id] : [])])
                      }
                    />{" "}
                    {member.name} <span className="muted">{member.email}</span>
                  </label>{" "}
                  <strong role="status">{outcome && RESULTS[outcome]}</strong>
                </li>
              );
            })}
          </ul>
        )}
      </Form>
    </Dialog>
  );
}
