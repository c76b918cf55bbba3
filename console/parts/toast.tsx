import { Toast } from "@base-ui/react/toast";
import { capitalized } from "../api.ts";

const manager = Toast.createToastManager();

/** Shows the effect of an act for some seconds, on any page. @param undo takes it back, by a button that is shown for longer */
export function toast(text: string, undo?: () => unknown) {
  const onClick = () => {
    manager.close(id);
    undo?.();
  };
  const id = manager.add({
    title: capitalized(text),
    ...(undo && { timeout: 10_000, actionProps: { children: "Undo", onClick } }),
  });
}

export const Toasts = () => (
  <Toast.Provider toastManager={manager} timeout={3_000}>
    <Toast.Portal>
      <Toast.Viewport className="toasts">
        <Shown />
      </Toast.Viewport>
    </Toast.Portal>
  </Toast.Provider>
);

/** It takes no focus, and goes by itself. */
const NO_DIALOG = { role: "group", "aria-modal": undefined };

const Shown = () =>
  Toast.useToastManager().toasts.map((one) => (
    <Toast.Root key={one.id} toast={one} className="toast" {...NO_DIALOG}>
      <Toast.Title render={<span />} />
      <Toast.Action />
    </Toast.Root>
  ));
