import { type AnySender, confirm, preview, tokenOf } from "../test/support/sending.ts";
import { median, timed } from "./report.ts";

/** The median of so many previews over HTTP, in milliseconds. */
export async function timePreviews(sender: AnySender, times: number): Promise<number> {
  const latencies: number[] = [];
  for (let i = 0; i < times; i++) {
    const { ms, result } = await timed(() => preview(sender));
    if (result.status !== 200) throw new Error(`a preview was answered with ${result.status}: ${result.text}`);
    latencies.push(ms);
  }
  return median(latencies);
}

/** Previews and confirms over HTTP. @returns the id of the send, and the milliseconds until the confirm's 202 */
export async function timeConfirm(sender: AnySender): Promise<{ ms: number; sendId: string }> {
  const token = await tokenOf(sender);
  const { ms, result } = await timed(() => confirm(sender, token));
  if (result.status !== 202) throw new Error(`a confirm was answered with ${result.status}: ${result.text}`);
  return { ms, sendId: result.body.data.id };
}
