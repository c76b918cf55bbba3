/** The values of each setting of a viewport with which a mail can be read on a phone. */
const READABLE: Record<string, RegExp> = {
  width: /^(?:device-width|[3-6]\d{2})$/,
  height: /^device-height$/,
  "initial-scale": /^1(?:\.\d{1,3})?$/,
  "minimum-scale": /^(?:0?\.\d{1,3}|1(?:\.0{1,3})?)$/,
  "maximum-scale": /^(?:[1-9]|10)(?:\.\d{1,3})?$/,
  "user-scalable": /^(?:yes|no|0|1)$/,
  "shrink-to-fit": /^(?:yes|no)$/,
  "viewport-fit": /^(?:auto|cover|contain)$/,
};

/** Most characters that are read. */
const MAX_CHARS = 300;

/** Whether the `content` of a viewport leaves letters at a size that can be read. */
export const isReadableViewport = (content: string): boolean =>
  content.length <= MAX_CHARS &&
  content
    .toLowerCase()
    .replace(/\s*=\s*/g, "=")
    .split(/[\s,;]+/)
    .filter((setting) => setting !== "")
    .every((setting) => {
      const [name = "", value = ""] = setting.split("=");
      return READABLE[name]?.test(value) ?? false;
    });
