/** `npm run histories`: records histories for test/workflows/replay.test.ts; names of paths limit it to those. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Client, WithStartWorkflowOperation, WorkflowIdConflictPolicy } from "@temporalio/client";
import { sql } from "kysely";
import type { EmailAccount } from "../../db/entities/account.ts";
import { kysely } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { reservePorts } from "../../stack/infra.ts";
import { findTemporalCli } from "../../stack/temporal-cli.ts";
import { sendWorkflowId, TASK_QUEUES } from "../../temporal/ids.ts";
import { RESOURCE_ID, TEAM_ID } from "../../temporal/search-attributes.ts";
import type { sendWorkflow } from "../../workflows/send.ts";
import { previewUpdate } from "../../workflows/send-messages.ts";
import { eventually } from "../support/eventually.ts";
import { withStack } from "../support/own-stack.ts";
import {
  confirm,
  type FaultRule,
  ledgerStates,
  makeSender,
  preview,
  type Sender,
  type SenderOptions,
  setFaults,
  startSend,
  startTomorrow,
  tokenOf,
} from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { temporalClient, untilDetails as untilShown } from "../support/temporal.ts";
import { historyFile, recordedHistory, type WorkflowHistory } from "./files.ts";

/** Waits short enough to be waited for. */
const QUICK = {
  DEFERRAL_LADDER_SECONDS: "1,1,2",
  SMTP_TIMEOUT_MS: "1000",
  SMTP_MAIL_TIMEOUT_MS: "300",
  SMTP_RCPT_TIMEOUT_MS: "300",
  SMTP_DATA_TIMEOUT_MS: "300",
  SMTP_BLOCK_TIMEOUT_MS: "300",
  SMTP_DOT_TIMEOUT_MS: "300",
  WEBHOOK_LADDER_SECONDS: "0,1,1,2",
  WEBHOOK_TIMEOUT_MS: "5000",
};
/** A workflow waits for its token's lifetime and a minute; this leaves two seconds of it. */
const EXPIRES_IN_MS = -58_000;
/** A low number instead of thousands keeps the file of that path small; the other paths have fewer events. */
const SUGGEST_CONTINUE_AS_NEW = 150;
const RETRY_EVERY_MS = 1_000;

let temporal: Client;

const handleOf = (sendId: string) => temporal.workflow.getHandle<typeof sendWorkflow>(sendWorkflowId(sendId));
const update = (sendId: string, name: string) => handleOf(sendId).executeUpdate<unknown, []>(name);
const until = (what: string, condition: () => Promise<boolean>) => eventually(condition, { what });
const write = (sender: Sender, query: ReturnType<typeof sql>) => query.execute(kysely(sender.em));

/** All paths run at once, so a recipient's address decides how the mail catcher answers. */
const FAULTS: FaultRule[] = [
  { stage: "auth", code: 535, message: "5.7.8 no" },
  { stage: "rcpt", match: "^deferred", code: 450, message: "4.2.0 later", times: 2 },
  { stage: "rcpt", match: "^nobody", code: 550, message: "5.1.1 no such user" },
  { stage: "data", match: "^lost", drop: true },
  { stage: "data", match: "^policy", code: 554, message: "5.7.1 blocked", times: 20 },
  { stage: "data", match: "^slow", delayMs: 30 },
  { stage: "data", match: "^tardy", delayMs: 700 },
];

/** A sender whose recipients the mail catcher treats by their name. */
function senderTo(names: Record<string, number>, options: SenderOptions = {}): Promise<Sender> {
  const domain = `${newId("list").slice(5)}.example`;
  const recipients = Object.entries(names).flatMap(([name, count]) =>
    Array.from({ length: count }, (_, i) => ({ email: `${name}${i}@${domain}` })),
  );
  return makeSender({ recipients, ...options });
}

/** Two accounts of one connection each. @param second how the second differs */
const twoAccounts = (second: Partial<EmailAccount> = {}): SenderOptions => ({
  account: { maxConnections: 1 },
  furtherAccounts: [second],
});

async function start(sender: Sender): Promise<string> {
  return (await startSend(sender)).data.id;
}

/** Confirmed for tomorrow. */
const startLater = async (sender: Sender): Promise<string> => (await startTomorrow(sender)).data.id;

const dayComes = (sender: Sender, sendId: string) =>
  write(sender, sql`update sends set send_at = now() where id = ${sendId}`);

const someMail = (sender: Sender) => until("some mail", async () => ((await ledgerStates(sender)).SENT ?? 0) > 3);

const untilDetails = (sendId: string, text: string) => untilShown(handleOf(sendId), text);

const untilOperator = (sendId: string) =>
  until("the call for an operator", async () => {
    if ((await handleOf(sendId).describe()).searchAttributes["NeedsOperator"]?.[0] === true) return true;
    await update(sendId, "retry");
    // Every try adds events to the file.
    await delay(RETRY_EVERY_MS);
    return false;
  });

/** Starts a send's workflow as a client's preview does, with a token that expires soon. */
async function previewBriefly(sender: Sender): Promise<string> {
  const previewId = newId("send");
  const input = {
    previewId,
    teamId: sender.team.id,
    environment: "LIVE",
    resource: { type: "newsletter", id: sender.newsletterId },
  } as const;
  await temporal.workflow.executeUpdateWithStart(previewUpdate, {
    args: [{ apiKeyId: sender.liveKey.record.id }],
    startWorkflowOperation: new WithStartWorkflowOperation<typeof sendWorkflow>("sendWorkflow", {
      workflowId: sendWorkflowId(previewId),
      taskQueue: TASK_QUEUES.sends,
      args: [{ ...input, expiresInMs: EXPIRES_IN_MS }],
      workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
      typedSearchAttributes: [
        { key: TEAM_ID, value: sender.team.id },
        { key: RESOURCE_ID, value: sender.newsletterId },
      ],
    }),
  });
  return previewId;
}

/** The send of a newsletter whose preview was refused: no answer names it. */
async function sendOf({ newsletterId }: Sender): Promise<string> {
  const query = `ResourceId = '${newsletterId}'`;
  const id = await eventually(
    async () => {
      for await (const { workflowId } of temporal.workflow.list({ query })) return workflowId;
      return undefined;
    },
    { what: "the workflow in the list" },
  );
  return String(id).slice(sendWorkflowId("").length);
}

/** Each path of a send: it takes it there and gives the send's id; the history is read once the workflow has ended. */
const PATHS: Record<string, () => Promise<string>> = {
  "preview-expired": async () => previewBriefly(await senderTo({ reader: 2 })),

  "preview-refused": async () => {
    const sender = await senderTo({ reader: 2 }, { credits: 1 });
    await preview(sender);
    return sendOf(sender);
  },

  "confirm-refused-then-voided": async () => {
    const sender = await senderTo({ reader: 2 });
    const token = await tokenOf(sender);
    await sender.client.patch(`/newsletters/${sender.newsletterId}`, { subject: "Other" });
    await confirm(sender, token);
    const sendId = await sendOf(sender);
    await update(sendId, "cancel");
    return sendId;
  },

  sent: async () => start(await senderTo({ reader: 3 })),

  // The resend waits, and is lost as well.
  "unknown-resent": async () => {
    const sendId = await start(await senderTo({ reader: 2, lost: 1 }));
    await untilDetails(sendId, "resendUnknown");
    await update(sendId, "resendUnknown");
    await untilDetails(sendId, "Credits are settled. Updates: resendUnknown");
    await update(sendId, "cancel");
    return sendId;
  },

  "sent-on-its-day": async () => {
    const sender = await senderTo({ reader: 2 });
    const sendId = await startLater(sender);
    await untilDetails(sendId, "starts at its send_at");
    await dayComes(sender, sendId);
    await update(sendId, "retry");
    return sendId;
  },

  "paused-and-resumed": async () => {
    const sender = await senderTo({ slow: 60 }, { account: { maxConnections: 1 } });
    const sendId = await start(sender);
    await someMail(sender);
    await update(sendId, "pause");
    await untilDetails(sendId, "Paused by an operator");
    await update(sendId, "resume");
    return sendId;
  },

  "paused-by-a-client": async () => {
    const sender = await senderTo({ slow: 60 }, { account: { maxConnections: 1 } });
    const sendId = await start(sender);
    await someMail(sender);
    await sender.client.post(`/newsletters/${sender.newsletterId}/pause`);
    await untilDetails(sendId, "Paused by a client");
    await sender.client.post(`/newsletters/${sender.newsletterId}/resume`);
    return sendId;
  },

  "cancelled-in-the-ui": async () => {
    const sender = await senderTo({ slow: 60 }, { account: { maxConnections: 1 } });
    const sendId = await start(sender);
    await someMail(sender);
    await handleOf(sendId).cancel();
    return sendId;
  },

  "deferred-then-sent": async () => start(await senderTo({ reader: 2, deferred: 1 })),

  "account-failure-then-retried": async () => {
    const sender = await senderTo({ reader: 2 });
    // A password that no key of ours decrypts.
    await write(
      sender,
      sql`update email_accounts set username = 'x', encrypted_password = 'k9.a.b.c' where id = ${sender.accountId}`,
    );
    const sendId = await start(sender);
    await untilOperator(sendId);
    await write(
      sender,
      sql`update email_accounts set username = null, encrypted_password = null where id = ${sender.accountId}`,
    );
    await update(sendId, "retry");
    return sendId;
  },

  "account-full-then-retried": async () => {
    const sender = await senderTo({ reader: 4 }, { account: { hourlyLimit: 2 } });
    const sendId = await start(sender);
    await untilDetails(sendId, "connections or limits used up");
    await write(sender, sql`update email_accounts set hourly_limit = null where id = ${sender.accountId}`);
    await update(sendId, "retry");
    return sendId;
  },

  failed: async () => start(await senderTo({ nobody: 2 })),

  "two-accounts": async () => start(await senderTo({ slow: 60 }, twoAccounts())),

  "two-accounts-one-fails": async () => start(await senderTo({ slow: 40, deferred: 1 }, twoAccounts({ port: 1 }))),

  "continued-as-new": async () => {
    const sender = await senderTo({ reader: 3 });
    await write(sender, sql`update email_accounts set port = 1 where id = ${sender.accountId}`);
    const sendId = await start(sender);
    const { runId } = await handleOf(sendId).describe();
    await until("a second run", async () => {
      await update(sendId, "retry");
      return (await handleOf(sendId).describe()).runId !== runId;
    });
    const { port } = new URL((await stack()).mail.smtp);
    await write(sender, sql`update email_accounts set port = ${Number(port)} where id = ${sender.accountId}`);
    await update(sendId, "retry");
    return sendId;
  },
};

/** The histories of a workflow, one per run, the first run's first. */
async function historiesOf(workflowId: string): Promise<WorkflowHistory[]> {
  const handle = temporal.workflow.getHandle(workflowId);
  await handle.result();
  const histories: WorkflowHistory[] = [];
  let { runId }: { runId: string | null | undefined } = await handle.describe();
  while (runId) {
    const history: WorkflowHistory = await temporal.workflow.getHandle(workflowId, runId).fetchHistory();
    histories.unshift(history);
    runId = history.events?.[0]?.workflowExecutionStartedEventAttributes?.continuedExecutionRunId;
  }
  return histories;
}

async function record(paths: Record<string, () => Promise<string>>, path: string): Promise<number> {
  const take = paths[path];
  if (!take) throw new Error(`there is no path "${path}"; there are ${Object.keys(paths).join(", ")}`);
  const workflowId = await take().catch((cause) => {
    throw new Error(`the path "${path}" could not be taken`, { cause });
  });
  const histories = await historiesOf(workflowId);
  for (const [i, history] of histories.entries()) {
    const file = historyFile(histories.length > 1 ? `${path}.${i + 1}` : path);
    writeFileSync(file, recordedHistory(workflowId, history));
    console.log(`${file}: ${history.events?.length} events`);
  }
  return histories.length;
}

const sendPaths = (): Record<string, () => Promise<string>> =>
  Object.fromEntries(Object.entries(PATHS).map(([path, take]) => [path, async () => sendWorkflowId(await take())]));

/** The Temporal CLI, for a server that suggests to go on as a new run early. */
async function impatientCli(folder: string): Promise<string> {
  const cli = await findTemporalCli({ env: process.env, report: console.error });
  const file = join(folder, "temporal");
  const early = `--dynamic-config-value limit.historyCount.suggestContinueAsNew=${SUGGEST_CONTINUE_AS_NEW}`;
  const script = `#!/bin/sh\ncase "$1" in server) exec '${cli}' "$@" ${early};; *) exec '${cli}' "$@";; esac\n`;
  writeFileSync(file, script, { mode: 0o755 });
  return file;
}

const folder = mkdtempSync(`${tmpdir()}/mailkeel-histories-`);
try {
  const { receiver } = await reservePorts({ receiver: { port: 0 } });
  // Read when the module of the receivers is loaded.
  process.env["MAILKEEL_RECEIVERS"] = String(receiver);
  const settings = {
    ...QUICK,
    WEBHOOK_ALLOWED_HOSTS: `127.0.0.1:${receiver}`,
    TEMPORAL_CLI: await impatientCli(folder),
  };
  await withStack({ settings }, async () => {
    const connected = await temporalClient();
    temporal = connected.client;
    try {
      await setFaults(FAULTS);
      const { deliveryPaths } = await import("./deliveries.ts");
      const { sequencePaths } = await import("./sequences.ts");
      const { importPaths } = await import("./imports.ts");
      const paths = {
        ...sendPaths(),
        ...sequencePaths(temporal),
        ...importPaths(temporal),
        ...(await deliveryPaths(temporal)),
      };
      const wanted = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(paths);
      const counts = await Promise.all(wanted.map((path) => record(paths, path)));
      console.log(`${counts.reduce((a, b) => a + b, 0)} histories of ${wanted.length} paths`);
    } finally {
      await connected.close();
    }
  });
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit();
