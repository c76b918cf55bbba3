import assert from "node:assert/strict";
import { publicSubject, withoutGreeting } from "../../lib/subject.ts";

const NAME = '{{ first_name | default: "there" }}';

describe("A subject that all readers see", () => {
  for (const [subject, shown] of [
    [`Your November coffee, ${NAME}`, "Your November coffee"],
    [`Your coffee , ${NAME}!`, "Your coffee!"],
    ["Your coffee, {{first_name}} {{ last_name }} ☕", "Your coffee ☕"],
    ["Thanks, {{- fields.nick | upcase -}}, for coming", "Thanks, for coming"],
    [`${NAME}, your coffee is here`, "Your coffee is here"],
    [`${NAME}: élan`, "Élan"],
    ["Good news {{ first_name }}!", "Good news!"],
    ["Bonjour {{ first_name }} !", "Bonjour !"],
    ["{{ first_name }} {{ last_name }} your coffee", "your coffee"],
  ] as const) {
    it(`leaves the greeting out of: ${subject}`, () => {
      assert.equal(publicSubject(subject), shown);
    });
  }

  it("keeps tags of no person, and those that a sentence needs, with their fallback", () => {
    for (const subject of [
      "News, {{ list_name }}",
      `A gift for ${NAME}`,
      `Hello ${NAME}, the news`,
      `Coffee, ${NAME} and tea`,
      `It is here, ${NAME}'s coffee`,
      "{% if first_name %}{{ list_name }}, {% endif %}news",
      `${NAME}!`,
      "{{ first_name",
    ]) {
      assert.equal(publicSubject(subject), subject);
    }
    assert.equal(withoutGreeting("Good news {{ first_name }}!"), "Good news {{ first_name }}!");
  });
});
