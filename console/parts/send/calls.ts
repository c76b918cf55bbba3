import type { Client, DataOf } from "../../api.ts";
import { useData, useWorkspace } from "../../session.tsx";

export type Kind = "newsletter" | "campaign";

/** The procedures of one newsletter or campaign, and the parameters that name it. */
export function useCalls(kind: Kind, id: string) {
  const { newsletters, campaigns } = useWorkspace().client.api;
  return { calls: kind === "newsletter" ? newsletters : campaigns, params: { [`${kind}Id`]: id } };
}

export type Send = DataOf<Client["app"]["overview"]["progress"]["query"]>[number];
export type GateReport = DataOf<Client["app"]["overview"]["gates"]["query"]>;

export const isOpen = ({ status }: { status: string }): boolean =>
  status === "SCHEDULED" || status === "SENDING" || status === "PAUSED";

/** Recipients without an outcome: after a cancel they are settled within seconds. */
export const waitingIn = ({ queued, sending, deferred }: Send["recipients"]): number => queued + sending + deferred;

/** Of a send that has ended: those whose cancellation is not settled yet count as cancelled. */
export const settled = ({ queued, deferred, cancelled, ...others }: Send["recipients"]): Send["recipients"] => ({
  ...others,
  ...{ queued: 0, deferred: 0, cancelled: cancelled + queued + deferred },
});

const LIVE_MS = 2_000;
const IDLE_MS = 30_000;

/** The last send of a resource, or all that go out. It asks again while one does and the page is visible. */
export function useProgress(resourceId?: string): readonly Send[] {
  const read = ({ app }: Client) => app.overview.progress.query({ body: { resource_id: resourceId } });
  return useData(["progress", resourceId], read, {
    poll: (sends) =>
      sends.some((send) => isOpen(send) || waitingIn(send.recipients) > 0)
        ? LIVE_MS
        : resourceId === undefined && IDLE_MS,
  });
}
