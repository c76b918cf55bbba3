// Mocha's usual report; with TEST_SUMMARY set, the counts, the failures and the slowest tests go to that file as JSON.
const { writeFileSync } = require("node:fs");
const { relative } = require("node:path");
const { reporters, Runner } = require("mocha");

const { EVENT_TEST_END, EVENT_TEST_FAIL, EVENT_HOOK_END } = Runner.constants;
/** Tests and files that are listed. */
const LISTED = 10;
/** Of the text of a failure. */
const FAILURE_CHARACTERS = 1_500;

const slowest = (entries) => entries.sort((a, b) => b.ms - a.ms).slice(0, LISTED);

module.exports = class extends reporters.Spec {
  #tests = [];
  #failures = [];
  /** Milliseconds by file, hooks included. */
  #files = new Map();

  constructor(runner, options) {
    super(runner, options);
    runner.on(EVENT_TEST_END, (test) => {
      this.#tests.push({ name: test.fullTitle(), ms: test.duration ?? 0 });
      this.#count(test);
    });
    runner.on(EVENT_TEST_FAIL, (test, error) => {
      const text = String(error?.stack ?? error).slice(0, FAILURE_CHARACTERS);
      this.#failures.push({ name: test.fullTitle(), file: relative(process.cwd(), test.file ?? ""), text });
    });
    runner.on(EVENT_HOOK_END, (hook) => this.#count(hook));
  }

  #count({ file, duration = 0 }) {
    if (file === undefined) return;
    const name = relative(process.cwd(), file);
    this.#files.set(name, (this.#files.get(name) ?? 0) + duration);
  }

  done(failures, finish) {
    const summary = process.env.TEST_SUMMARY;
    const files = [...this.#files].map(([name, ms]) => ({ name, ms }));
    if (summary) {
      const counts = { passed: this.stats.passes, failed: failures, failures: this.#failures };
      writeFileSync(summary, JSON.stringify({ ...counts, tests: slowest(this.#tests), files: slowest(files) }));
    }
    finish(failures);
  }
};
