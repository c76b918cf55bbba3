import type { Words } from "./en.ts";

export const de: Words = {
  locale: "de-DE",
  footer: {
    reason: "Sie erhalten diese E-Mail, weil Sie in unserem Verteiler eingetragen sind.",
    reasonOfList: (list) => `Sie erhalten diese E-Mail, weil Sie in der Liste „${list}“ eingetragen sind.`,
    unsubscribe: "Abmelden",
    web: "Im Browser ansehen",
    tracking: "Festlegen, ob Öffnungen und Klicks gezählt werden",
  },
  confirmation: {
    subject: "Bitte bestätigen Sie Ihre Anmeldung",
    title: "Bestätigen Sie Ihre Anmeldung",
    request: (list, team) => `Jemand, vermutlich Sie, möchte „${list}“ von ${team} an diese Adresse erhalten.`,
    open: "Um Ihre Anmeldung zu bestätigen, öffnen Sie diese Seite:",
    button: "Anmeldung bestätigen",
    ignore: "Wenn Sie das nicht waren, ignorieren Sie diese E-Mail: Ohne Ihre Bestätigung werden Sie nicht angemeldet.",
    unnamedTeam: "einem Absender",
    unnamedList: "Newsletter",
  },
  confirm: {
    title: (list) => `${list} abonnieren`,
    question: (team) => `Möchten Sie diese E-Mails von ${team} erhalten?`,
    done: "Sie sind angemeldet",
    already: "Sie sind bereits angemeldet",
    future: (list, team) => `Sie erhalten künftig „${list}“ von ${team}.`,
    held: "Ihre Bestätigung ist gespeichert",
    suppressed: (team) =>
      `Sie erhalten noch keine E-Mails: Diese Adresse steht auf der Sperrliste von ${team}. Bitten Sie ${team}, sie von dort zu entfernen.`,
    spent: "Dieser Link ist nicht mehr gültig",
    spentReason:
      "Er gehört zu einer früheren Anmeldung. Wenn Sie diese E-Mails erhalten möchten, melden Sie sich bitte erneut an.",
  },
  signUp: {
    intro: (list, team) => `Melden Sie sich an, um „${list}“ von ${team} zu erhalten.`,
    email: "E-Mail-Adresse",
    first_name: "Vorname",
    last_name: "Nachname",
    button: "Anmelden",
    done: "Bitte sehen Sie in Ihr Postfach",
    mailed:
      "Wenn Sie noch nicht angemeldet sind, erhalten Sie gleich eine E-Mail. Ihre Anmeldung beginnt, sobald Sie sie über den Link darin bestätigen.",
    invalid: "Bitte geben Sie eine E-Mail-Adresse ein, zum Beispiel name@example.com.",
    throwaway: "Bitte geben Sie eine Adresse ein, die Sie behalten. Wegwerf-Adressen werden nicht angenommen.",
    wait: (seconds) => `Bitte warten Sie ${seconds} Sekunden und drücken Sie dann die Taste. Das hält Programme fern.`,
    again: "Das hat zu lange gedauert oder wurde zweimal gesendet. Bitte füllen Sie das Formular noch einmal aus.",
    many: "Es gab zu viele Anmeldungen in kurzer Zeit. Bitte versuchen Sie es in einer Stunde noch einmal.",
    closed: "Dieses Formular nimmt zurzeit keine Anmeldungen an.",
  },
  optOut: {
    title: (team) => `E-Mails von ${team} abbestellen`,
    reason: (lists, team) => `Diese E-Mail von ${team} ging an die Empfänger von ${lists}.`,
    choice: "Wählen Sie, was Sie nicht mehr erhalten möchten.",
    all: (team) => `Sie erhalten an diese Adresse keine E-Mails mehr von ${team}.`,
    some: (lists, team) => `Sie erhalten ${lists} von ${team} nicht mehr an diese Adresse.`,
    button: "Abmelden",
    buttonSome: (lists) => `Von ${lists} abmelden`,
    buttonAll: (team) => `Alle E-Mails von ${team} abbestellen`,
    done: "Sie sind abgemeldet",
    already: "Sie sind bereits abgemeldet",
  },
  undo: {
    button: "Ich habe mich versehentlich abgemeldet",
    done: "Willkommen zurück",
    restored: (team) => `Sie erhalten wieder E-Mails von ${team}.`,
    asked: (lists) =>
      `Für ${lists} brauchen wir Ihre Bestätigung: Wir senden Ihnen innerhalb eines Tages eine E-Mail. Bitte öffnen Sie den Link darin.`,
    impossible: "Das lässt sich hier nicht rückgängig machen",
    late: (team) => `Wenn Sie E-Mails von ${team} erhalten möchten, melden Sie sich bitte erneut an.`,
  },
  tracking: {
    title: (team) => `Öffnungen und Klicks in E-Mails von ${team}`,
    question: (team) =>
      `Darf ${team} erfassen, wann Sie E-Mails von ${team} öffnen und welche Links darin Sie anklicken?`,
    granted: (date) => `Sie haben es am ${date} erlaubt.`,
    denied: (date) =>
      `Sie haben es am ${date} abgelehnt. Öffnungen und Klicks werden nicht gezählt, auch nicht in E-Mails, die Sie schon haben.`,
    countedSoFar:
      "Sie haben noch nicht geantwortet. Öffnungen und Klicks in dieser E-Mail werden gezählt, solange Sie nicht ablehnen.",
    notCounted: "Sie haben noch nicht geantwortet. Öffnungen und Klicks in dieser E-Mail werden nicht gezählt.",
    asked: (words) => `Die Frage lautete: ${words}`,
    allow: "Erlauben",
    deny: "Ablehnen",
    done: "Ihre Antwort ist gespeichert",
  },
  erased: {
    title: "Ihre Daten wurden gelöscht",
    unknown: (team) => `${team} weiß nicht mehr, an welche Adresse diese E-Mail ging.`,
    newer: (team) => `Wenn Sie neuere E-Mails von ${team} erhalten, nutzen Sie bitte den Link darin.`,
  },
  web: {
    expired: {
      title: "Diese E-Mail ist hier nicht mehr verfügbar",
      reason: "E-Mails werden hier nur eine begrenzte Zeit gezeigt. Bitte sehen Sie in Ihrem Postfach nach.",
    },
    withdrawn: {
      title: "Diese Seite ist nicht verfügbar",
      reason: "Der Newsletter ist nicht oder nicht mehr veröffentlicht.",
    },
    empty: "Noch kein Newsletter.",
    feed: "RSS-Feed",
    issues: "Alle Ausgaben",
    subscribe: "Abonnieren",
  },
  broken: {
    title: "Dieser Link funktioniert nicht",
    reason:
      "Vielleicht ist er unvollständig. Bitte öffnen Sie ihn noch einmal aus der E-Mail, oder kopieren Sie ihn vollständig.",
  },
  refused: {
    title: "Bitte versuchen Sie es in einem Augenblick noch einmal",
    reason: "Unsere Daten sind gerade nicht erreichbar.",
  },
};
