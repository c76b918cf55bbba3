import { router } from "../../rest/route.ts";

export const accountsRouter = router({});
