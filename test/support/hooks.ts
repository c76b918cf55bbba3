import { closeAll } from "./factories.ts";

/** Loaded by mocha before the tests: whatever they opened is closed after the last one. */
export const mochaHooks = { afterAll: closeAll };
