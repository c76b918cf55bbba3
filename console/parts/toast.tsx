import { Toast } from "@base-ui/react/toast";

const manager = Toast.createToastManager();

/** Shows the effect of an act for some seconds, on any page. */
export const toast = (text: string) => void manager.add({ title: text });

export const Toasts = () => (
  <Toast.Provider toastManager={manager}>
    <Toast.Portal>
      <Toast.Viewport className="toasts">
        <Shown />
      </Toast.Viewport>
    </Toast.Portal>
  </Toast.Provider>
);

const Shown = () =>
  Toast.useToastManager().toasts.map((one) => (
    <Toast.Root key={one.id} toast={one} className="toast" role="group">
      <Toast.Title render={<span />} />
      <Toast.Close className="plain" aria-label="Dismiss">
        ✕
      </Toast.Close>
    </Toast.Root>
  ));
