// Mocha's usual report; with TEST_SUMMARY set, the counts go to that file as JSON.
const { writeFileSync } = require("node:fs");
const { reporters } = require("mocha");

module.exports = class extends reporters.Spec {
  done(failures, finish) {
    const file = process.env.TEST_SUMMARY;
    if (file) writeFileSync(file, JSON.stringify({ passed: this.stats.passes, failed: failures }));
    finish(failures);
  }
};
