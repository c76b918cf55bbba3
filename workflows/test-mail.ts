import { proxyActivities } from "@temporalio/workflow";
import type { DispatchActivities } from "../activities/dispatch.ts";
import type { TestMail, TestOutcome } from "../domain/sends/plan/test-mail.ts";
import { TASK_QUEUES } from "../temporal/ids.ts";
import { HEARTBEAT_TIMEOUT } from "./heartbeat.ts";
import { failureCodeOf } from "./steps.ts";

/** A draft's mail to members of its team, once: a second try could mail it twice. ID: test-mail/{testId}. */
export async function testMailWorkflow(test: TestMail): Promise<TestOutcome[]> {
  const { sendTestMail } = proxyActivities<DispatchActivities>({
    taskQueue: TASK_QUEUES.dispatch,
    scheduleToCloseTimeout: "15 minutes",
    heartbeatTimeout: HEARTBEAT_TIMEOUT,
    retry: { maximumAttempts: 1 },
    priority: { fairnessKey: test.teamId },
    summary: "mail a test",
  });
  try {
    return await sendTestMail(test);
  } catch (error) {
    const reason = failureCodeOf(error);
    return test.memberIds.map((memberId) => ({ memberId, outcome: "unknown", reason }));
  }
}
