/*
 * How mails of blocks look, for the service and for the console, which shows them while they are written. Colours are `#rrggbb`;
 * contrast is that of WCAG 2.2: text of 4.5 can be read.
 */

/** Pixels between the sides of a mail's text: no picture is wider. */
export const CONTENT_WIDTH = 552;
/** Of a logo, in pixels: of a square one the height, too. */
export const LOGO_WIDTH = 120;

/** Fonts that mail programs have. */
export const FONT_FAMILIES = {
  sans: "Helvetica,Arial,sans-serif",
  serif: "Georgia,'Times New Roman',serif",
  mono: "'Courier New',Courier,monospace",
} as const;

/** The colours of text on white, and of what is said beside it. */
export const [TEXT, MUTED] = ["#1f2328", "#595959"] as const;

/** Dark colours of mails and of pages for recipients: the page, the card on it, the text, and what is said beside it. */
export const DARK = { page: "#16181d", card: "#22252b", text: "#e8eaed", muted: "#a4abb8" } as const;

/** Around the text of a page for recipients, which stands on white. @param color the background of the brand's mails */
export const groundOf = (color: string): string => (color.toLowerCase() === "#ffffff" ? "#f4f4f2" : color);

export const NETWORKS = {
  ...{ facebook: "Facebook", instagram: "Instagram", linkedin: "LinkedIn", x: "X", youtube: "YouTube" },
  ...{ mastodon: "Mastodon", bluesky: "Bluesky", tiktok: "TikTok", github: "GitHub", website: "Website" },
} as const;

const READABLE = 4.5;
const STEPS = 20;

const channelsOf = (color: string): number[] => [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16));

function luminance(color: string): number {
  const [red = 0, green = 0, blue = 0] = channelsOf(color).map((channel) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

export function contrast(one: string, other: string): number {
  const [light = 0, dark = 0] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

/** Black or white, by which text can be read better on a colour. */
const poleOn = (background: string): string =>
  contrast("#ffffff", background) >= contrast("#000000", background) ? "#ffffff" : "#000000";

/** The colour of text on a background: white, or `TEXT`, darkened until it can be read. */
export const textOn = (background: string): string =>
  poleOn(background) === "#ffffff" ? "#ffffff" : readableOn(background, TEXT);

/** Whether a colour is nearly white, so that it glares on a dark page. */
export const isPale = (color: string): boolean => channelsOf(color).every((channel) => channel >= 0xd0);

/** The colour, mixed with so much black or white that text in it can be read. */
export function readableOn(background: string, color: string): string {
  const [from, to] = [channelsOf(color), channelsOf(poleOn(background))];
  for (let step = 0; ; step++) {
    const mixed = from.map((channel, i) => Math.round(channel + ((to[i] ?? 0) - channel) * (step / STEPS)));
    const text = `#${mixed.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
    if (contrast(text, background) >= READABLE || step === STEPS) return text;
  }
}
