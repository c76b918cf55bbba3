import { useBlocker } from "@tanstack/react-router";
import { use, useEffect } from "react";
import { AskToLeave, UnsavedIn } from "./dialog.tsx";

interface Unsaved {
  /** Whether there are changes now that are not saved. */
  isChanged: () => boolean;
  /** Tried before the member is asked. */
  save?: (() => Promise<unknown>) | undefined;
  /** Only the dialog around it asks. */
  isOfDialog?: boolean | undefined;
}

const placeOf = ({ pathname, search }: { pathname: string; search: object }) =>
  `${pathname}?${(search as { step?: string }).step ?? ""}`;

/** Asks before the page, its step or the dialog around it is left with unsaved changes. @returns the question, to be shown */
export function useUnsaved({ isChanged, save, isOfDialog = false }: Unsaved) {
  const ofDialog = use(UnsavedIn);
  useEffect(() => {
    if (!ofDialog) return;
    ofDialog.current = isChanged;
    return () => {
      ofDialog.current = undefined;
    };
  });
  const leaving = useBlocker({
    disabled: isOfDialog && !ofDialog,
    shouldBlockFn: async ({ current, next }) =>
      isChanged() &&
      placeOf(current) !== placeOf(next) &&
      (!save ||
        (await save().then(
          () => false,
          () => true,
        ))),
    enableBeforeUnload: isChanged,
    withResolver: true,
  });
  return leaving.status === "blocked" && <AskToLeave onStay={leaving.reset} onLeave={leaving.proceed} />;
}
