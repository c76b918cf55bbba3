/**
 * Loaded into every child of the stack before its own code: when the IPC channel closes, because the stack is gone
 * however it went, the child stops as if asked to. Loaded first, because a child may lose the stack while it starts.
 */
import { isMainThread } from "node:worker_threads";

if (isMainThread && process.connected !== undefined) {
  const stop = () => process.kill(process.pid, "SIGTERM");
  if (process.connected) process.once("disconnect", stop);
  else stop();
}
