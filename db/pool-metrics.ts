import { Gauge, type Registry } from "prom-client";
import type { ConnectionPool } from "./pool.ts";

export function watchConnections(registry: Registry, connections: ConnectionPool): void {
  new Gauge({
    name: "mailkeel_database_pool_connections",
    help: "Connections to Postgres that are used or idle, and callers waiting for one",
    labelNames: ["state"],
    registers: [registry],
    collect() {
      this.set({ state: "used" }, connections.totalCount - connections.idleCount);
      this.set({ state: "idle" }, connections.idleCount);
      this.set({ state: "waiting" }, connections.waitingCount);
    },
  });
}
