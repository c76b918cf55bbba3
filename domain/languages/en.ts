/**
 * The texts that the service itself says to recipients. Several lists are their names, joined by commas. A function has what
 * every language needs first.
 */
export const en = {
  /** How dates are written: BCP 47. */
  locale: "en-GB",
  /** Below each mail of a send. */
  footer: {
    reason: "You receive this email because you are on our mailing list.",
    reasonOfList: (list: string) => `You receive this email because you are on the list “${list}”.`,
    unsubscribe: "Unsubscribe",
    web: "View in browser",
    tracking: "Choose whether opens and clicks are counted",
  },
  /** The mail of a double opt-in. */
  confirmation: {
    subject: "Please confirm your subscription",
    title: "Confirm your subscription",
    request: (list: string, team: string) =>
      `Someone, most likely you, asked to receive “${list}” from ${team} at this address.`,
    open: "To confirm your subscription, open this page:",
    /** Of the page, too. */
    button: "Confirm subscription",
    ignore: "If this was not you, please ignore this email: you will not be subscribed unless you confirm.",
    unnamedTeam: "a sender",
    unnamedList: "Newsletter",
  },
  /** The page behind the link of that mail. */
  confirm: {
    title: (list: string) => `Subscribe to ${list}`,
    question: (team: string) => `Would you like to receive these emails from ${team}?`,
    done: "You are subscribed",
    already: "You are already subscribed",
    future: (list: string, team: string) => `You will receive “${list}” from ${team}.`,
    held: "Your confirmation is recorded",
    suppressed: (team: string) =>
      `You will not receive any emails yet: this address is on the do-not-mail list of ${team}. Please ask ${team} to remove it.`,
    spent: "This link no longer works",
    spentReason: "It belongs to an earlier sign-up. If you would like to receive these emails, please sign up again.",
  },
  /** A sign-up form and its pages. */
  signUp: {
    intro: (list: string, team: string) => `Sign up to receive “${list}” from ${team}.`,
    email: "Email address",
    first_name: "First name",
    last_name: "Last name",
    button: "Sign up",
    done: "Please check your mailbox",
    mailed:
      "Unless you are subscribed already, you will receive an email shortly. Your subscription begins once you confirm it by the link in that email.",
    invalid: "Please enter an email address, such as name@example.com.",
    throwaway: "Please enter an address that you keep. Mailboxes that are thrown away are not accepted.",
    wait: (seconds: number) => `Please wait ${seconds} seconds, then press the button. This keeps out programs.`,
    again: "This took too long, or was sent twice. Please fill in the form again.",
    many: "There were too many sign-ups within a short time. Please try again in an hour.",
    closed: "This form takes no sign-ups at present.",
  },
  optOut: {
    title: (team: string) => `Unsubscribe from ${team}`,
    reason: (lists: string, team: string) => `${team} sent this email to subscribers of ${lists}.`,
    choice: "Choose what you no longer want to receive.",
    all: (team: string) => `You will no longer receive any emails from ${team} at this address.`,
    some: (lists: string, team: string) => `You will no longer receive ${lists} from ${team} at this address.`,
    button: "Unsubscribe",
    buttonSome: (lists: string) => `Unsubscribe from ${lists}`,
    buttonAll: (team: string) => `Unsubscribe from all emails from ${team}`,
    done: "You are unsubscribed",
    already: "You are already unsubscribed",
  },
  /** Takes an opt-out back. */
  undo: {
    button: "I unsubscribed by mistake",
    done: "Welcome back",
    restored: (team: string) => `You will receive emails from ${team} as before.`,
    asked: (lists: string) =>
      `For ${lists} we need your confirmation: we will send you an email within a day. Please open the link in it.`,
    impossible: "This cannot be undone here",
    late: (team: string) => `If you would like to receive emails from ${team}, please sign up again.`,
  },
  tracking: {
    title: (team: string) => `Opens and clicks in emails from ${team}`,
    /** Stored with the answer. */
    question: (team: string) => `May ${team} record when you open its emails and which links in them you click?`,
    granted: (date: string) => `You said yes on ${date}.`,
    denied: (date: string) =>
      `You said no on ${date}. Opens and clicks are not counted, not even in emails that you already have.`,
    countedSoFar: "You have not answered yet. Opens and clicks in this email are counted until you say no.",
    notCounted: "You have not answered yet. Opens and clicks in this email are not counted.",
    /** Where the question was another one. */
    asked: (words: string) => `You were asked: ${words}`,
    allow: "Allow",
    deny: "Do not allow",
    done: "Your answer is recorded",
  },
  erased: {
    title: "Your data was erased",
    unknown: (team: string) => `${team} no longer knows to which address this email was sent.`,
    newer: (team: string) => `If you receive newer emails from ${team}, please use the link in those.`,
  },
  /** Of mails and newsletters as pages. */
  web: {
    expired: {
      title: "This email is no longer available here",
      reason: "Emails are shown here for a limited time. Please look in your mailbox.",
    },
    withdrawn: { title: "This page is not available", reason: "The newsletter is not published, or no longer." },
    empty: "No newsletter yet.",
    feed: "RSS feed",
    issues: "All issues",
    subscribe: "Subscribe",
  },
  broken: {
    title: "This link does not work",
    reason: "It may be incomplete. Please open it from the email again, or copy the whole link.",
  },
  refused: {
    title: "Please try again in a moment",
    reason: "Our records are unavailable right now.",
  },
};

/** A text that a language lacks is an error of types. */
export type Words = typeof en;
