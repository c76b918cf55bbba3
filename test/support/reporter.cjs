// Mocha's usual report; with TEST_SUMMARY set, the counts and what took longest go to that file as JSON.
const { writeFileSync } = require("node:fs");
const { relative } = require("node:path");
const { reporters, Runner } = require("mocha");

const { EVENT_TEST_END, EVENT_HOOK_END } = Runner.constants;
/** Tests and files that are listed. */
const LISTED = 10;

const slowest = (entries) => entries.sort((a, b) => b.ms - a.ms).slice(0, LISTED);

module.exports = class extends reporters.Spec {
  #tests = [];
  /** Milliseconds by file, hooks included. */
  #files = new Map();

  constructor(runner, options) {
    super(runner, options);
    runner.on(EVENT_TEST_END, (test) => {
      this.#tests.push({ name: test.fullTitle(), ms: test.duration ?? 0 });
      this.#count(test);
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
      const counts = { passed: this.stats.passes, failed: failures };
      writeFileSync(summary, JSON.stringify({ ...counts, tests: slowest(this.#tests), files: slowest(files) }));
    }
    finish(failures);
  }
};
