import { useState } from "react";
import { useData, useWorkspace } from "../../session.tsx";
import { Act } from "../act.tsx";
import { Ticks } from "../form.tsx";
import type { Kind } from "../send/calls.ts";

const MOST = 5;

const RESULTS = { sent: "sent", not_sent: "not sent", unknown: "perhaps sent: look into the mailbox" };

/** Sends the saved draft to some members of the team. */
export function TestMail({ kind, id }: { kind: Kind; id: string }) {
  const { client } = useWorkspace();
  const [chosen, setChosen] = useState<readonly string[]>([]);
  // A press after a lost answer sends nothing twice; another choice is another test.
  const [idempotencyKey, setKey] = useState(() => crypto.randomUUID());
  const [outcomes, setOutcomes] = useState<Awaited<ReturnType<typeof send>>>();
  const members = useData(["members"], () => client.app.team.members.query({}));
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
    <Act
      title="Send a test"
      submit="Send the test"
      note={`The saved mail goes to up to ${MOST} members of the team, over the sender's account, and counts toward your daily limit.`}
      isDisabled={chosen.length === 0 || outcomes !== undefined}
      act={async () => {
        setOutcomes(await send());
        return false;
      }}
    >
      <Ticks
        options={members.map(({ id: member, name, email }) => {
          const outcome = outcomes?.find(({ member_id }) => member_id === member)?.outcome;
          return {
            id: member,
            name: (
              <>
                {name} <span className="muted">{email}</span>{" "}
                <strong role="status">{outcome && RESULTS[outcome]}</strong>
              </>
            ),
            isDisabled: chosen.length >= MOST && !chosen.includes(member),
          };
        })}
        chosen={chosen}
        onChange={choose}
      />
    </Act>
  );
}
