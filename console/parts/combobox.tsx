import { Combobox as Base } from "@base-ui/react/combobox";
import { type InputHTMLAttributes, useState } from "react";

interface Option {
  value: string;
  label: string;
}

export interface ComboboxProps<Value>
  extends Omit<InputHTMLAttributes<HTMLInputElement>, "value" | "defaultValue" | "onChange"> {
  /** Texts by values. */
  choices: Readonly<Record<string, string>>;
  /** Of several, they stand in it as chips. */
  value?: Value | undefined;
  defaultValue?: Value | undefined;
  onChange?: ((value: Value) => void) | undefined;
}

/** Of more the first ones are shown: the member writes on. */
const MOST_SHOWN = 50;

/** A choice among many by some letters of its text. */
export function Combobox<Value extends string | readonly string[]>(props: ComboboxProps<Value>) {
  const { choices, value, defaultValue, onChange, name, disabled, required, ...input } = props;
  const [box, setBox] = useState<HTMLElement | null>(null);
  const options = Object.entries(choices).map(([id, label]): Option => ({ value: id, label }));
  const chosenIn = (ids: string | readonly string[] = "") =>
    typeof ids === "string"
      ? (options.find((one) => one.value === ids) ?? null)
      : options.filter((one) => ids.includes(one.value));
  const isMultiple = Array.isArray(value ?? defaultValue);
  const change = (chosen: Option | Option[] | null) =>
    chosen && onChange?.((Array.isArray(chosen) ? chosen.map((one) => one.value) : chosen.value) as Value);
  return (
    <Base.Root<Option, boolean>
      items={options}
      multiple={isMultiple}
      {...(value === undefined ? { defaultValue: chosenIn(defaultValue) } : { value: chosenIn(value) })}
      onValueChange={change}
      isItemEqualToValue={(a, b) => a.value === b.value}
      limit={MOST_SHOWN}
      autoHighlight
      {...{ name, disabled, required }}
    >
      <Base.Chips className="chips">
        {isMultiple && (
          <Base.Value>
            {(chosen: readonly Option[]) =>
              chosen.map((one) => (
                <Base.Chip key={one.value} className="chip">
                  {one.label}
                  <Base.ChipRemove className="plain" aria-label={`Remove ${one.label}`}>
                    ✕
                  </Base.ChipRemove>
                </Base.Chip>
              ))
            }
          </Base.Value>
        )}
        <Base.Input
          {...input}
          placeholder="Search"
          onFocus={({ currentTarget }) => currentTarget.select()}
          // Escape closes the list, and then the dialog around it: it takes no choice away.
          onKeyDown={(event) =>
            event.key === "Escape" && event.currentTarget.ariaExpanded !== "true" && event.preventBaseUIHandler()
          }
        />
      </Base.Chips>
      <span ref={setBox} />
      <Base.Portal container={box}>
        <Base.Positioner className="popup" align="start" positionMethod="fixed">
          <Base.Popup className="options">
            <Base.Empty>{<p className="muted">No matches.</p>}</Base.Empty>
            <Base.List>
              {(one: Option) => (
                <Base.Item key={one.value} value={one}>
                  {one.label}
                </Base.Item>
              )}
            </Base.List>
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}
