/**
 * The baseline of the API: Express with two routes, each of which runs one prepared statement. `GET /` reads a row by its
 * key, `POST /` inserts one. Started by `startBareExpress`, as a process of its own.
 */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import express from "express";
import { Pool } from "pg";
import { startModule } from "./own-process.ts";

const CONNECTIONS = 10;

/** Starts it on a database. @returns its origin */
export async function startBareExpress(databaseUrl: string): Promise<{ origin: string; pid: number; close(): void }> {
  const { pid, reply, close } = startModule(import.meta.filename, [], { DATABASE_URL: databaseUrl });
  return { origin: `http://127.0.0.1:${await reply<number>()}`, pid, close };
}

async function main(): Promise<void> {
  const pool = new Pool({ connectionString: process.env["DATABASE_URL"], max: CONNECTIONS });
  await pool.query(
    "create table bare_rows (id bigint generated always as identity primary key, email text, name text)",
  );
  await pool.query(
    "insert into bare_rows (email, name) select 'person' || i, 'Name ' || i from generate_series(1, 1000) i",
  );
  const app = express();
  app.disable("x-powered-by");
  app.disable("etag");
  app.get("/", async (_req, res) => {
    const id = 1 + Math.floor(Math.random() * 1_000);
    const { rows } = await pool.query({ name: "read", text: "select * from bare_rows where id = $1", values: [id] });
    res.json({ data: rows[0] });
  });
  app.post("/", express.json(), async (req, res) => {
    const { email, name } = req.body as { email: string; name: string };
    const text = "insert into bare_rows (email, name) values ($1, $2) returning *";
    const { rows } = await pool.query({ name: "insert", text, values: [email, name] });
    res.status(201).json({ data: rows[0] });
  });
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  process.send?.((server.address() as AddressInfo).port);
}

if (import.meta.main) await main();
