import { useEffect, useEffectEvent, useState } from "react";
import type { Client, DataOf } from "../../api.ts";
import { useData, useSession, useWorkspace } from "../../session.tsx";
import { Act } from "../act.tsx";
import { Ticks, type TicksProps } from "../form.tsx";
import type { Mail } from "./drafts.ts";

const MOST = 5;

type Outcomes = DataOf<Client["app"]["content"]["sendTest"]["mutate"]>;
const RESULTS = { sent: "sent", not_sent: "not sent", unknown: "possibly sent: check the inbox" };

/** Sends the saved mail to some members of the team. */
export function TestMail({ mail }: { mail: Mail }) {
  const { client } = useWorkspace();
  const [chosen, setChosen] = useState<readonly string[]>([]);
  const [outcomes, setOutcomes] = useState<Outcomes>();
  const choose = (ids: string[]) => {
    setChosen(ids);
    setOutcomes(undefined);
  };
  return (
    <Act
      title="Send a test"
      submit="Send test"
      note={`The saved email goes to up to ${MOST} team members from the sender's account, and counts towards your daily limit.`}
      onOpen={() => choose([])}
      cancel={outcomes && "Close"}
      isDisabled={chosen.length === 0 || outcomes !== undefined}
      act={async (_, context) => {
        const body = { ...mail, member_ids: [...chosen] };
        setOutcomes((await client.app.content.sendTest.mutate({ body }, { context })).data);
        return false;
      }}
    >
      <Members chosen={chosen} outcomes={outcomes} onChange={choose} />
    </Act>
  );
}

function Members({ outcomes, ...ticks }: Omit<TicksProps, "options"> & { outcomes: Outcomes | undefined }) {
  const members = useData(["members"], ({ app }) => app.team.members.query({}));
  const own = useSession().data?.email;
  const begin = useEffectEvent(() =>
    ticks.onChange(
      members.filter(({ email }) => email === own).map(({ id }) => id),
      "",
    ),
  );
  useEffect(() => begin(), []);
  const options = members.map(({ id, name, email }) => {
    const outcome = outcomes?.find(({ member_id }) => member_id === id)?.outcome;
    const label = (
      <>
        {name} <span className="muted">{email}</span> <strong role="status">{outcome && RESULTS[outcome]}</strong>
      </>
    );
    return { id, name: label, isDisabled: ticks.chosen.length >= MOST && !ticks.chosen.includes(id) };
  });
  return <Ticks options={options} {...ticks} />;
}
